// Operators on a GPU against the same operators in fp64 on the CPU, forward and gradients. Skipped where there is no GPU.
#include "base/autograd.h"
#include "ops/attn_res/attn_res.h"
#include "ops/experts/experts.h"
#include "ops/glu/glu.h"
#include "ops/kda/kda.h"
#include "ops/kda/kda_cuda.h"
#include "ops/mla/mla.h"
#include "ops/mxfp4/mxfp4.h"
#include "ops/norm/norm.h"
#include "ops/short_conv/short_conv.h"
#include "support/tensors.h"

namespace k3 {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
    at::manual_seed(1);
  }
};

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// Value and gradients of `function` at these fp64 inputs, rounded to `type` first, computed on the GPU in `type` and on the CPU in fp64.
void expect_as_on_cpu(const Function& function, const std::vector<Tensor>& inputs, at::ScalarType type, double limit, double gradient_limit) {
  std::vector<Tensor> device, host;
  for (const Tensor& input : inputs) {
    const Tensor rounded = input.to(type);
    device.push_back(rounded.to(at::kCUDA).set_requires_grad(true));
    host.push_back(rounded.to(at::kDouble).set_requires_grad(true));
  }
  const Tensor got = function(device), want = function(host);
  test::expect_close(got, want, limit, "value");
  const Tensor weights = at::randn(want.sizes(), at::kDouble);
  const auto got_grads = torch::autograd::grad({(got.to(at::kDouble) * weights.to(at::kCUDA)).sum()}, device);
  const auto want_grads = torch::autograd::grad({(want * weights).sum()}, host);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    test::expect_close(got_grads[i], want_grads[i], gradient_limit, "gradient " + std::to_string(i));
}

TEST_F(Cuda, KdaKernelsForwardAndBackward) {
  const RowPlan plan = RowPlan::of_lengths({70, 0, 1, 300, 33});
  for (const std::int64_t dim : {32, 64, 128}) {
    const std::vector<std::int64_t> shape = {plan.tokens(), 2, dim};
    const Function function = [&](const std::vector<Tensor>& x) {
      // Gates and beta are fp32 in the model whatever the dtype of the values.
      const at::ScalarType wide = x[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      const ops::KdaInputs in{ops::l2_norm(x[0], 1e-6), ops::l2_norm(x[1], 1e-6), x[2], -5 * at::sigmoid(x[3].to(wide)), at::sigmoid(x[4].to(wide)), true};
      const ops::KdaResult result = ops::kda(in, plan, x[5]);
      return at::cat({result.out.reshape({-1}), result.state.reshape({-1})});
    };
    const std::vector<Tensor> inputs = {at::randn(shape), at::randn(shape), at::randn(shape), at::randn(shape) - 3, at::randn({plan.tokens(), 2}),
                                        at::randn({plan.rows(), 2, dim, dim})};
    expect_as_on_cpu(function, inputs, at::kFloat, 1e-5, 2e-5);
    expect_as_on_cpu(function, inputs, at::kBFloat16, 1e-2, 2e-2);
  }
}

TEST_F(Cuda, KdaTakesTheKernelsWhereItSays) {
  const Tensor q = at::randn({4, 2, 64}, at::device(at::kCUDA).dtype(at::kBFloat16));
  EXPECT_TRUE(ops::kda_cuda_takes({q, q, q, q, q, true})) << "a build with CUDA must use its kernels";
}

TEST_F(Cuda, PackedAttention) {
  const RowPlan plan = RowPlan::of_lengths({70, 1, 200});
  const Function function = [&](const std::vector<Tensor>& x) { return ops::mla_packed(x[0], x[1], x[2], {32, 16, 32}, plan); };
  const std::vector<Tensor> inputs = {at::randn({271, 3, 48}), at::randn({271, 64 + 16}), at::randn({3, 64, 64}) / 8};
  expect_as_on_cpu(function, inputs, at::kBFloat16, 1e-2, 2e-2);
  expect_as_on_cpu(function, inputs, at::kFloat, 1e-4, 1e-4);
}

TEST_F(Cuda, GroupedExperts) {
  const Tensor chosen = std::get<1>(at::topk(at::rand({300, 15}), 4, -1));  // expert 15 of 16 gets nothing
  const Function function = [&](const std::vector<Tensor>& x) {
    ops::Routing routing;
    routing.experts = chosen.to(x[0].device());
    routing.weights = x[1].to(x[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    return ops::experts(x[0], routing, {{x[2], {}, {}}, {x[3], {}, {}}, {x[4], {}, {}}}, {true, 4, 25});
  };
  const std::vector<Tensor> inputs = {at::randn({300, 128}), at::rand({300, 4}), at::randn({16, 64, 128}) / 11, at::randn({16, 64, 128}) / 11,
                                      at::randn({16, 128, 64}) / 8};
  expect_as_on_cpu(function, inputs, at::kBFloat16, 1.5e-2, 2e-2);
  expect_as_on_cpu(function, inputs, at::kFloat, 1e-5, 1e-5);
}

TEST_F(Cuda, DepthMixAndNorms) {
  const Function mix = [](const std::vector<Tensor>& x) { return ops::attn_res_mix({x[0], x[1], x[2]}, x[3], x[4], 1e-5); };
  const std::vector<Tensor> inputs = {at::randn({99, 256}), at::randn({99, 256}), at::randn({99, 256}), at::rand({256}), at::randn({256}) / 16};
  expect_as_on_cpu(mix, inputs, at::kFloat, 1e-5, 1e-5);
  expect_as_on_cpu(mix, inputs, at::kBFloat16, 1e-2, 2e-2);
  const Function norm = [](const std::vector<Tensor>& x) { return ops::rms_norm(x[0], x[1], 1e-5); };
  expect_as_on_cpu(norm, {inputs[0], inputs[3]}, at::kBFloat16, 1e-2, 2e-2);
}

TEST_F(Cuda, ShortConvolutionAcrossRowBorders) {
  const RowPlan plan = RowPlan::of_lengths({70, 0, 1, 2, 3, 130, 64});  // borders inside strips of 64, rows shorter than the taps
  const Function function = [&](const std::vector<Tensor>& x) { return ops::short_conv(x[0], x[1], plan, {}).out; };
  const std::vector<Tensor> inputs = {at::randn({plan.tokens(), 24}), at::randn({24, 4})};
  expect_as_on_cpu(function, inputs, at::kFloat, 1e-5, 1e-5);
  expect_as_on_cpu(function, inputs, at::kBFloat16, 1e-2, 2e-2);
}

TEST_F(Cuda, SituGlu) {
  for (const ops::Glu options : {ops::Glu{true, 4, 25}, ops::Glu{true, 1, 0}, ops::Glu{false, 0, 0}}) {
    const Function function = [&](const std::vector<Tensor>& x) { return ops::glu(x[0], x[1], options); };
    const std::vector<Tensor> inputs = {at::randn({33, 64}) * 4, at::randn({33, 64}) * 20};
    expect_as_on_cpu(function, inputs, at::kFloat, 1e-5, 1e-5);
    expect_as_on_cpu(function, inputs, at::kBFloat16, 1e-2, 2e-2);
  }
}

TEST_F(Cuda, Mxfp4SameCodesAsOnTheCpu) {
  const Tensor x = at::randn({64, 256}) * at::exp(at::randn({64, 1}) * 6);
  const ops::Mxfp4 host = ops::mxfp4_quantize(x), device = ops::mxfp4_quantize(x.to(at::kCUDA));
  EXPECT_TRUE(at::equal(host.codes, device.codes.cpu()));
  EXPECT_TRUE(at::equal(host.scales, device.scales.cpu()));
  EXPECT_TRUE(at::equal(ops::mxfp4_round(x), ops::mxfp4_round(x.to(at::kCUDA)).cpu()));
}

}  // namespace
}  // namespace k3
