#include "ops/kda/kda.h"

#include "kda_oracle.h"
#include "ops/norm/norm.h"
#include "support/tensors.h"

namespace k3 {
namespace {

using ops::KdaForm;
using ops::KdaInputs;
using test::expect_close;

enum class Gate { slow, mixed, at_bound, softplus };

KdaInputs random_inputs(std::int64_t tokens, std::int64_t heads, std::int64_t dim, Gate gate, at::ScalarType type = at::kDouble) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  KdaInputs in;
  in.q = ops::l2_norm(at::randn({tokens, heads, dim}, options), 1e-6).to(type);
  in.k = ops::l2_norm(at::randn({tokens, heads, dim}, options), 1e-6).to(type);
  in.v = at::randn({tokens, heads, dim}, options).to(type);
  in.beta = at::sigmoid(at::randn({tokens, heads}, options) * 2).to(type);
  in.bounded = gate != Gate::softplus;
  const Tensor z = at::randn({tokens, heads, dim}, options);
  if (gate == Gate::slow) in.g = -5 * at::sigmoid(z - 12);
  if (gate == Gate::mixed) in.g = -5 * at::sigmoid(z * 4);
  if (gate == Gate::at_bound) in.g = at::full_like(z, -5.0);
  if (gate == Gate::softplus) in.g = -16 * at::softplus(z * 3);
  in.g = in.g.to(type);
  return in;
}

struct Case {
  std::vector<std::int64_t> lengths;
  std::int64_t heads, dim;
  Gate gate;
};

class KdaForms : public testing::TestWithParam<Case> {};

TEST_P(KdaForms, MatchTheOracle) {
  at::manual_seed(1);
  const Case& c = GetParam();
  const RowPlan plan = RowPlan::of_lengths(c.lengths);
  const Tensor initial = at::randn({plan.rows(), c.heads, c.dim, c.dim}, at::kDouble);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const KdaInputs in = random_inputs(plan.tokens(), c.heads, c.dim, c.gate, type);
    const test::OracleKda want = test::oracle_kda(in.q, in.k, in.v, in.g, in.beta, plan.starts, initial);
    // fp32 at a long memory accumulates one rounding a token: 2e-6 was the worst seen over these cases.
    const double limit = type == at::kDouble ? 1e-11 : 1e-5;
    for (const KdaForm form : {KdaForm::recurrent, KdaForm::chunk}) {
      const std::string what = form == KdaForm::recurrent ? "recurrent" : "chunk";
      const ops::KdaResult got = ops::kda(in, plan, initial.to(type), form);
      expect_close(got.out, want.out, limit, what + " out");
      expect_close(got.state, want.state, limit, what + " state");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, KdaForms,
                         testing::Values(Case{{1}, 1, 8, Gate::mixed}, Case{{7}, 3, 16, Gate::mixed}, Case{{64}, 2, 16, Gate::slow},
                                         Case{{65, 1, 63, 130}, 2, 16, Gate::mixed}, Case{{0, 5, 0, 200, 1}, 3, 8, Gate::slow},
                                         Case{{150}, 2, 32, Gate::at_bound}, Case{{129, 3}, 2, 16, Gate::softplus}, Case{{0}, 2, 8, Gate::mixed}));

// Identical unit keys with beta near 1 and almost no decay break power-series inverses (kernels.md 1.4).
TEST(Kda, CorrelatedKeysStayExact) {
  at::manual_seed(2);
  const RowPlan plan = RowPlan::of_lengths({256});
  KdaInputs in = random_inputs(256, 2, 16, Gate::slow, at::kFloat);
  in.k = in.k.narrow(0, 0, 1).expand_as(in.k).contiguous();
  in.beta = at::full_like(in.beta, 0.99966);
  const test::OracleKda want = test::oracle_kda(in.q, in.k, in.v, in.g, in.beta, plan.starts, {});
  expect_close(ops::kda(in, plan, {}, KdaForm::chunk).out, want.out, 2e-5, "correlated keys");
}

// Half of the channels at the bound, half without decay: the widest spread inside a tile.
TEST(Kda, ChannelsAtBothEndsOfTheGate) {
  at::manual_seed(3);
  const RowPlan plan = RowPlan::of_lengths({100});
  KdaInputs in = random_inputs(100, 2, 16, Gate::at_bound, at::kFloat);
  in.g.narrow(-1, 0, 8).zero_();
  const test::OracleKda want = test::oracle_kda(in.q, in.k, in.v, in.g, in.beta, plan.starts, {});
  expect_close(ops::kda(in, plan, {}, KdaForm::chunk).out, want.out, 1e-5, "half at the bound");
}

TEST(Kda, GradientsOfBothForms) {
  at::manual_seed(4);
  const RowPlan plan = RowPlan::of_lengths({70, 0, 7});
  for (const Gate gate : {Gate::mixed, Gate::softplus})
    for (const KdaForm form : {KdaForm::recurrent, KdaForm::chunk}) {
      const KdaInputs in = random_inputs(77, 3, 5, gate);
      const Tensor initial = at::randn({3, 3, 5, 5}, at::kDouble);
      const auto function = [&](const std::vector<Tensor>& x) {
        const ops::KdaResult result = ops::kda({x[0], x[1], x[2], x[3], x[4], in.bounded}, plan, x[5], form);
        return at::cat({result.out.reshape({-1}), result.state.reshape({-1})});
      };
      test::expect_gradients(function, {in.q, in.k, in.v, in.g, in.beta, initial}, "kda", 1e-6);
    }
}

// checkpoint.md 9.
TEST(Kda, PublishedStepVector) {
  const auto t = [](std::vector<double> x) { return at::tensor(x, at::kDouble); };
  const Tensor initial = t({.1, -.2, .3, .4}).view({1, 1, 2, 2});
  // The vector gives q and k before their L2 normalisation.
  const KdaInputs in{ops::l2_norm(t({3, 4}), 1e-6).view({1, 1, 2}), ops::l2_norm(t({1, -2}), 1e-6).view({1, 1, 2}), t({.5, 1.5}).view({1, 1, 2}), t({-.5, -1}).view({1, 1, 2}), t({.7}).view({1, 1}), true};
  const ops::KdaResult got = ops::kda(in, RowPlan::of_lengths({1}), initial);
  expect_close(got.state.view({4}), t({0.239588248, 0.406453441, -0.247506532, -0.908367369}), 1e-8, "state");
  expect_close(got.out.view({2}), t({-0.0383621519, -0.341406584}), 1e-8, "out");
}

TEST(KdaGate, PublishedVectors) {
  struct Row { double a, z, bounded, softplus; };
  for (const Row& row : {Row{0, 0, -2.5, -0.693147181}, Row{0, 1, -3.65529289, -1.31326169}, Row{.5, -1, -0.806409242, -0.516481208}}) {
    const Tensor z = at::full({1, 1, 1}, row.z, at::kDouble), a = at::full({1}, row.a, at::kDouble), bias = at::zeros({1}, at::kDouble);
    EXPECT_NEAR(ops::kda_gate(z, a, bias, -5.0).item<double>(), row.bounded, 1e-8);
    EXPECT_NEAR(ops::kda_gate(z, a, bias, std::nullopt).item<double>(), row.softplus, 1e-8);
  }
}

TEST(KdaGate, Gradients) {
  const auto function = [](const std::vector<Tensor>& x) { return ops::kda_gate(x[0], x[1], x[2], -5.0); };
  test::expect_gradients(function, {at::randn({7, 3, 5}), at::randn({3}), at::randn({15})}, "bounded gate");
  const auto unbounded = [](const std::vector<Tensor>& x) { return ops::kda_gate(x[0], x[1], x[2], std::nullopt); };
  test::expect_gradients(unbounded, {at::randn({7, 3, 5}), at::randn({3}), at::randn({15})}, "softplus gate");
}

}  // namespace
}  // namespace k3
