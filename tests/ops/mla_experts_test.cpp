#include "ops/experts/experts.h"
#include "ops/mla/mla.h"
#include "ops/mxfp4/mxfp4.h"
#include "support/tensors.h"

namespace k3 {
namespace {

using test::expect_close;
using test::expect_gradients;

constexpr ops::MlaShape kShape{5, 3, 4};

struct MlaCase {
  Tensor q, latent, kv_b;
};

MlaCase mla_case(std::int64_t tokens, std::int64_t keys, at::ScalarType type = at::kDouble) {
  at::manual_seed(11);
  const std::int64_t heads = 3, kv_lora = 7;
  return {at::randn({tokens, heads, 8}, at::kDouble).to(type), at::randn({keys, kv_lora + 3}, at::kDouble).to(type),
          at::randn({heads, 9, kv_lora}, at::kDouble).to(type)};
}

// One query at a time, straight from the definition.
Tensor mla_by_loops(const MlaCase& c) {
  const std::int64_t tokens = c.q.size(0), keys = c.latent.size(0), heads = c.q.size(1), kv_lora = c.kv_b.size(2);
  Tensor out = at::zeros({tokens, heads, 4}, at::kDouble);
  for (std::int64_t token = 0; token < tokens; ++token)
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t visible = keys - tokens + token + 1;
      const Tensor latent = c.latent.narrow(0, 0, visible).narrow(1, 0, kv_lora).to(at::kDouble);
      const Tensor both = at::matmul(latent, c.kv_b[head].to(at::kDouble).t());  // [visible, 9]
      const Tensor shared = c.latent.narrow(0, 0, visible).narrow(1, kv_lora, 3).to(at::kDouble);
      const Tensor q = c.q[token][head].to(at::kDouble);
      const Tensor scores = (at::matmul(both.narrow(1, 0, 5), q.narrow(0, 0, 5)) + at::matmul(shared, q.narrow(0, 5, 3))) / std::sqrt(8.0);
      out[token][head] = at::matmul(at::softmax(scores, 0), both.narrow(1, 5, 4));
    }
  return out;
}

TEST(Mla, ExpandedAndAbsorbedMatchTheDefinition) {
  for (const auto& [tokens, keys] : {std::pair<int, int>{1, 1}, {1, 9}, {7, 7}, {5, 12}}) {
    const MlaCase c = mla_case(tokens, keys);
    const Tensor want = mla_by_loops(c);
    expect_close(ops::mla_expanded(c.q, c.latent, c.kv_b, kShape), want, 1e-12, "expanded");
    expect_close(ops::mla_absorbed(c.q, c.latent, c.kv_b, kShape), want, 1e-12, "absorbed");
    const MlaCase f = mla_case(tokens, keys, at::kFloat);
    expect_close(ops::mla_expanded(f.q, f.latent, f.kv_b, kShape), want, 2e-6, "expanded fp32");
    expect_close(ops::mla_absorbed(f.q, f.latent, f.kv_b, kShape), want, 2e-6, "absorbed fp32");
  }
}

TEST(Mla, PackedRowsDoNotSeeEachOther) {
  const MlaCase c = mla_case(12, 12);
  const RowPlan plan = RowPlan::of_lengths({4, 0, 1, 7});
  const Tensor packed = ops::mla_packed(c.q, c.latent, c.kv_b, kShape, plan);
  for (const auto& [start, length] : {std::pair<int, int>{0, 4}, {4, 1}, {5, 7}}) {
    const MlaCase alone{c.q.narrow(0, start, length), c.latent.narrow(0, start, length), c.kv_b};
    expect_close(packed.narrow(0, start, length), mla_by_loops(alone), 1e-12, "row");
  }
  expect_gradients([&](const auto& x) { return ops::mla_packed(x[0], x[1], x[2], kShape, plan); }, {c.q, c.latent, c.kv_b}, "mla", 1e-6);
}

struct ExpertCase {
  Tensor z;
  ops::Routing routing;
  ops::ExpertWeights weights;
};

ExpertCase expert_case(std::int64_t tokens) {
  at::manual_seed(12);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  ExpertCase c{at::randn({tokens, 32}, options), {}, {}};
  // Expert 5 of 6 is never chosen.
  c.routing.experts = std::get<1>(at::topk(at::rand({tokens, 5}, options), 2, -1));
  c.routing.weights = at::rand({tokens, 2}, options);
  c.weights.w1.weight = at::randn({6, 64, 32}, options);
  c.weights.w3.weight = at::randn({6, 64, 32}, options);
  c.weights.w2.weight = at::randn({6, 32, 64}, options);
  return c;
}

Tensor experts_by_loops(const ExpertCase& c, const ops::Glu& glu) {
  Tensor out = at::zeros_like(c.z);
  for (std::int64_t token = 0; token < c.z.size(0); ++token)
    for (std::int64_t i = 0; i < 2; ++i) {
      const std::int64_t expert = c.routing.experts[token][i].item<std::int64_t>();
      const Tensor hidden = ops::glu(at::mv(c.weights.w1.weight[expert], c.z[token]), at::mv(c.weights.w3.weight[expert], c.z[token]), glu);
      out[token] += c.routing.weights[token][i] * at::mv(c.weights.w2.weight[expert], hidden);
    }
  return out;
}

TEST(Experts, GroupedEqualsTokenByToken) {
  const ops::Glu glu{true, 4, 25};
  for (const int tokens : {1, 2, 13}) {
    const ExpertCase c = expert_case(tokens);
    expect_close(ops::experts(c.z, c.routing, c.weights, glu), experts_by_loops(c, glu), 1e-12, "experts");
  }
}

TEST(Experts, Gradients) {
  const ExpertCase c = expert_case(5);
  const auto function = [&](const std::vector<Tensor>& x) {
    ops::Routing routing = c.routing;
    routing.weights = x[1];
    ops::ExpertWeights weights;
    weights.w1.weight = x[2];
    weights.w3.weight = x[3];
    weights.w2.weight = x[4];
    return ops::experts(x[0], routing, weights, {true, 4, 25});
  };
  expect_gradients(function, {c.z, c.routing.weights, c.weights.w1.weight, c.weights.w3.weight, c.weights.w2.weight}, "experts", 1e-6);
}

TEST(Experts, PackedEqualsDecoded) {
  ExpertCase c = expert_case(9);
  ops::ExpertWeights packed, decoded;
  for (const auto& [to_packed, to_decoded, from] : {std::tuple{&packed.w1, &decoded.w1, &c.weights.w1}, {&packed.w3, &decoded.w3, &c.weights.w3},
                                                    {&packed.w2, &decoded.w2, &c.weights.w2}}) {
    const ops::Mxfp4 codes = ops::mxfp4_quantize(from->weight);
    to_packed->codes = codes.codes;
    to_packed->scales = codes.scales;
    to_decoded->weight = ops::mxfp4_dequantize(codes.codes, codes.scales, at::kDouble);
  }
  const ops::Glu glu{true, 4, 25};
  const Tensor want = ops::experts(c.z, c.routing, decoded, glu);
  expect_close(ops::experts(c.z, c.routing, packed, glu), want, 1e-12, "fp64");
  c.routing.weights = c.routing.weights.to(at::kFloat);
  expect_close(ops::experts(c.z.to(at::kFloat), c.routing, packed, glu), want, 1e-6, "fp32 kernel");
  expect_close(ops::experts(c.z.to(at::kBFloat16), c.routing, packed, glu), want, 2e-2, "bf16");
}

}  // namespace
}  // namespace k3
