// Norms, GLU, AttnRes, short convolution, router, MXFP4: published vectors, independent loops, gradients.
#include "ops/attn_res/attn_res.h"
#include "ops/glu/glu.h"
#include "ops/mxfp4/mxfp4.h"
#include "ops/norm/norm.h"
#include "ops/router/router.h"
#include "ops/short_conv/short_conv.h"
#include "support/tensors.h"

namespace k3 {
namespace {

using test::expect_close;
using test::expect_gradients;

Tensor vec(std::vector<double> x) { return at::tensor(x, at::kDouble); }

TEST(Glu, PublishedSituVectors) {
  const Tensor got = ops::glu(vec({1, -1, 10, -10, .5}), vec({1, 2, 10, 3, -30}), {true, 4.0, 25.0});
  expect_close(got, vec({0.715817828, -0.525828896, 37.4846061, -0.000534917096, -6.45287734}), 1e-8, "situ");
}

TEST(Glu, Gradients) {
  for (const ops::Glu options : {ops::Glu{true, 4, 25}, ops::Glu{true, 1, 0}, ops::Glu{false, 0, 0}})
    expect_gradients([&](const auto& x) { return ops::glu(x[0], x[1], options); }, {at::randn({7, 5}) * 3, at::randn({7, 5}) * 20}, "glu");
}

TEST(RmsNorm, MatchesLoopAndGradients) {
  at::manual_seed(1);
  const Tensor x = at::randn({3, 5}, at::kDouble) * 1e-3, weight = at::randn({5}, at::kDouble);
  const Tensor got = ops::rms_norm(x, weight, 1e-5);
  for (int row = 0; row < 3; ++row) {
    double sum = 0;
    for (int i = 0; i < 5; ++i) sum += std::pow(x[row][i].item<double>(), 2);
    for (int i = 0; i < 5; ++i)
      EXPECT_NEAR(got[row][i].item<double>(), x[row][i].item<double>() / std::sqrt(sum / 5 + 1e-5) * weight[i].item<double>(), 1e-12);
  }
  expect_gradients([](const auto& y) { return ops::rms_norm(y[0], y[1], 1e-5); }, {x, weight}, "rms_norm", 1e-6);
  expect_gradients([](const auto& y) { return ops::gated_rms_norm(y[0], y[1], y[2], 1e-5); },
                   {at::randn({7, 3, 5}), at::randn({7, 3, 5}), at::randn({5})}, "gated_rms_norm");
}

// The published code rounds x * r to bf16 before the weight: one rounding more than a fused kernel would make.
TEST(RmsNorm, RoundsBeforeTheWeight) {
  const Tensor x = at::randn({64, 32}).to(at::kBFloat16), weight = at::randn({32}).to(at::kBFloat16);
  const Tensor wide = x.to(at::kFloat);
  const Tensor want = (wide * at::rsqrt(wide.square().mean(-1, true) + 1e-5)).to(at::kBFloat16) * weight;
  EXPECT_TRUE(at::equal(ops::rms_norm(x, weight, 1e-5), want));
}

TEST(L2Norm, EpsilonStandsInsideTheRoot) {
  EXPECT_NEAR(ops::l2_norm(vec({3e-3, 4e-3}), 1e-6)[1].item<double>(), 4e-3 / std::sqrt(25e-6 + 1e-6), 1e-12);
}

TEST(AttnRes, PublishedVector) {
  const std::vector<Tensor> sources = {vec({1, 2}).view({1, 2}), vec({.5, -1}).view({1, 2}), vec({3, 0}).view({1, 2})};
  expect_close(ops::attn_res_mix(sources, vec({1, .5}), vec({.2, -.4}), 1e-5), vec({1.52404704, 0.0819858210}).view({1, 2}), 1e-8, "mix");
}

TEST(AttnRes, ZeroQueriesAverageAndGradients) {
  at::manual_seed(5);
  std::vector<Tensor> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(at::randn({7, 5}, at::kDouble));
  expect_close(ops::attn_res_mix(inputs, at::ones({5}, at::kDouble), at::zeros({5}, at::kDouble), 1e-5), at::stack(inputs).mean(0), 1e-12, "mean");
  inputs.push_back(at::randn({5}));
  inputs.push_back(at::randn({5}));
  expect_gradients([](const auto& x) { return ops::attn_res_mix({x[0], x[1], x[2], x[3]}, x[4], x[5], 1e-5); }, inputs, "attn_res", 1e-6);
}

Tensor conv_by_loops(const Tensor& u, const Tensor& taps, const RowPlan& plan, const Tensor& window) {
  Tensor out = at::zeros_like(u);
  const std::int64_t history = taps.size(1) - 1;
  for (std::int64_t row = 0; row < plan.rows(); ++row)
    for (std::int64_t token = plan.starts[row]; token < plan.starts[row + 1]; ++token) {
      Tensor sum = at::zeros({u.size(1)}, u.options());
      for (std::int64_t tap = 0; tap <= history; ++tap) {
        const std::int64_t from = token - history + tap, before = plan.starts[row] - from;
        if (before <= 0) sum += taps.select(1, tap) * u[from];
        else if (window.defined()) sum += taps.select(1, tap) * window[row][history - before];
      }
      out[token] = at::silu(sum);
    }
  return out;
}

TEST(ShortConv, RowsWindowsAndShortDocuments) {
  at::manual_seed(6);
  const RowPlan plan = RowPlan::of_lengths({5, 1, 0, 2, 9});
  const Tensor u = at::randn({17, 6}, at::kDouble), taps = at::randn({6, 4}, at::kDouble);
  expect_close(ops::short_conv(u, taps, plan, {}).out, conv_by_loops(u, taps, plan, {}), 1e-12, "from nothing");
  const Tensor window = at::randn({5, 3, 6}, at::kDouble);
  const ops::ShortConv got = ops::short_conv(u, taps, plan, window);
  expect_close(got.out, conv_by_loops(u, taps, plan, window), 1e-12, "with windows");
  EXPECT_TRUE(at::equal(got.window[2], window[2])) << "an empty row keeps its window";
  EXPECT_TRUE(at::equal(got.window[1][2], u[5]));
  EXPECT_TRUE(at::equal(got.window[1][0], window[1][1]));
  expect_gradients([&](const auto& x) { return ops::short_conv(x[0], x[1], plan, {}).out; }, {u, taps}, "short_conv");
}

TEST(Router, ChoosesByBiasedScoreWeighsByPlainOnes) {
  at::manual_seed(7);
  const Tensor h = at::randn({9, 6}, at::kDouble), weight = at::randn({11, 6}, at::kDouble), bias = at::randn({11}, at::kDouble);
  const ops::Routing routing = ops::route(h, weight, bias, 3, true, 1.7);
  for (int token = 0; token < 9; ++token) {
    std::vector<std::pair<double, int>> order;
    std::vector<double> score(11);
    for (int expert = 0; expert < 11; ++expert) {
      score[expert] = 1 / (1 + std::exp(-(h[token] * weight[expert]).sum().item<double>()));
      order.push_back({-(score[expert] + bias[expert].item<double>()), expert});
    }
    std::sort(order.begin(), order.end());
    const double sum = score[order[0].second] + score[order[1].second] + score[order[2].second];
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(routing.experts[token][i].item<std::int64_t>(), order[i].second);
      EXPECT_NEAR(routing.weights[token][i].item<double>(), score[order[i].second] / sum * 1.7, 1e-12);
    }
    EXPECT_NEAR(routing.cutoff[token].item<double>(), -order[3].first, 1e-12);
  }
  expect_gradients([&](const auto& x) { return ops::route(x[0], x[1], bias, 3, true, 1.7).weights; }, {h, weight}, "router");
}

TEST(Router, EqualScoresTakeTheLowerIndex) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const ops::Routing routing = ops::route(at::zeros({2, 4}, type), at::zeros({10, 4}, type), at::zeros({10}, type), 3, true, 1.0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(routing.experts[1][i].item<std::int64_t>(), i);
  }
}

// The integer keys of the fp32 path keep the order of negative and positive values.
TEST(Router, FloatAndDoublePathsAgree) {
  at::manual_seed(8);
  const Tensor h = at::randn({200, 8}), weight = at::randn({32, 8}), bias = at::randn({32}) * 2 - 1;
  const Tensor got = ops::route(h, weight, bias, 4, true, 1.0).experts;
  const Tensor want = ops::route(h.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble), 4, true, 1.0).experts;
  EXPECT_GE((got == want).to(at::kFloat).mean().item<float>(), 0.99f);
  EXPECT_TRUE(at::equal(got, std::get<1>(at::sort(at::sigmoid(at::matmul(h, weight.t())) + bias, true, -1, true)).narrow(1, 0, 4)));
}

TEST(Mxfp4, PublishedEncodeVector) {
  Tensor x = at::zeros({1, 32});
  const float values[] = {.07f, -.31f, .45f, 1.20f, -2.6f, 3.1f, 5.0f, -6.5f};
  const float want[] = {0, -.5f, .5f, 1, -3, 3, 4, -6};
  for (int i = 0; i < 8; ++i) x[0][i] = values[i];
  const Tensor got = ops::mxfp4_round(x);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(got[0][i].item<float>(), want[i]) << i;
}

TEST(Mxfp4, RoundEqualsQuantizeThenDequantize) {
  at::manual_seed(9);
  const Tensor x = at::randn({5, 7, 96}) * at::exp(at::randn({5, 7, 1}) * 8);
  const ops::Mxfp4 packed = ops::mxfp4_quantize(x);
  EXPECT_TRUE(at::equal(ops::mxfp4_dequantize(packed.codes, packed.scales, at::kFloat), ops::mxfp4_round(x)));
  EXPECT_TRUE(at::equal(ops::mxfp4_dequantize(packed.codes, packed.scales, at::kBFloat16).to(at::kFloat), ops::mxfp4_round(x)));
  EXPECT_TRUE(at::equal(ops::mxfp4_round(ops::mxfp4_round(x)), ops::mxfp4_round(x))) << "rounding twice changes nothing";
}

}  // namespace
}  // namespace k3
