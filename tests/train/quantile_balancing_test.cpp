// Quantile Balancing against training.md 9.2 and against an exact order-statistic oracle.
#include "train/quantile_balancing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace k3::train {
namespace {

const Tensor kAllowed = at::ones({}, at::kBool);

ops::Routing routing_of(const Tensor& scores, const Tensor& bias, std::int64_t k) {
  const auto [values, experts] = (scores + bias).topk(k + 1, 1);
  ops::Routing routing;
  routing.scores = scores;
  routing.experts = experts.narrow(1, 0, k).contiguous();
  routing.cutoff = values.select(1, k).contiguous();
  return routing;
}

// The q-th smallest of cutoff - score per expert, centred.
Tensor exact_bias(const ops::Routing& routing, std::int64_t k) {
  const Tensor margin = (routing.cutoff.unsqueeze(1) - routing.scores).to(at::kDouble);
  const std::int64_t q = margin.size(0) * k / margin.size(1);
  const Tensor sorted = std::get<0>(margin.sort(0));
  const Tensor bias = sorted[q - 1];
  return bias - bias.mean();
}

TEST(QuantileBalancing, VectorOfTheReference) {
  const Tensor scores =
      at::tensor({.91f, .40f, .30f, .20f, .85f, .50f, .35f, .10f, .80f, .62f, .15f, .30f, .77f, .45f, .55f, .25f,
                  .74f, .70f, .33f, .21f, .69f, .38f, .60f, .41f, .66f, .52f, .28f, .58f, .63f, .47f, .44f, .36f})
          .view({8, 4});
  const Tensor bias = at::zeros({4});
  QuantileBalancing balancing({bias}, 1);
  balancing.begin_step();
  balancing.count(0, routing_of(scores, bias, 1));
  balancing.end_step(kAllowed);
  const std::vector<double> want = {-.2892, .0596, .0608, .1688};
  // The margins of this vector lie exactly on bin borders, so fp32 may put one a bin (0.002) lower; centring moves the
  // others along.
  for (std::size_t expert = 0; expert < 4; ++expert)
    EXPECT_NEAR(bias[static_cast<std::int64_t>(expert)].item<double>(), want[expert], 0.004);
  EXPECT_NEAR(balancing.max_violation().item<double>(), 8.0 / 2 - 1,
              1e-6);  // before the update every token goes to expert 0
}

TEST(QuantileBalancing, WithinOneBinOfTheExactQuantile) {
  at::manual_seed(8);
  constexpr std::int64_t kExperts = 16, kChosen = 3, kTokens = 4096;
  const Tensor scores = at::sigmoid(at::randn({kTokens, kExperts}) + at::randn({1, kExperts}));
  const Tensor bias = at::zeros({kExperts});
  QuantileBalancing balancing({bias}, kChosen);
  for (int step = 0; step < 3; ++step) {
    const ops::Routing routing = routing_of(scores, bias, kChosen);
    const Tensor want = exact_bias(routing, kChosen);
    const double bin = (bias.max() - bias.min() + 2).item<double>() / QuantileBalancing::kBins;
    balancing.begin_step();
    balancing.count(0, routing);
    balancing.end_step(kAllowed);
    EXPECT_LE((bias.to(at::kDouble) - want).abs().max().item<double>(), 2 * bin);
  }
  balancing.begin_step();
  balancing.count(0, routing_of(scores, bias, kChosen));
  balancing.end_step(kAllowed);
  EXPECT_LT(balancing.max_violation().item<double>(), 0.1);
}

TEST(QuantileBalancing, MicroBatchesAddUpToOneBatch) {
  at::manual_seed(9);
  const Tensor scores = at::sigmoid(at::randn({1024, 8}));
  const Tensor one = at::zeros({8}), four = at::zeros({8});
  QuantileBalancing whole({one}, 2), parts({four}, 2);
  whole.begin_step();
  parts.begin_step();
  whole.count(0, routing_of(scores, one, 2));
  for (int part = 0; part < 4; ++part) parts.count(0, routing_of(scores.narrow(0, part * 256, 256), four, 2));
  EXPECT_TRUE(at::equal(whole.histogram(), parts.histogram()));
  whole.end_step(kAllowed);
  parts.end_step(kAllowed);
  EXPECT_TRUE(at::equal(one, four));
}

TEST(QuantileBalancing, ScoresThatAreNoNumbersStayInsideTheHistogram) {
  const Tensor bias = at::zeros({4});
  QuantileBalancing balancing({bias}, 1);
  balancing.begin_step();
  ops::Routing routing = routing_of(at::sigmoid(at::randn({8, 4})), bias, 1);
  routing.scores = at::full({8, 4}, std::nan(""), at::kFloat);
  balancing.count(0, routing);
  EXPECT_EQ(balancing.histogram().sum().item<std::int64_t>(), 32);
}

TEST(QuantileBalancing, ABadStepChangesNoBias) {
  const Tensor bias = at::tensor({0.1f, -0.1f, 0.0f, 0.0f});
  const Tensor before = bias.clone();
  QuantileBalancing balancing({bias}, 1);
  balancing.begin_step();
  balancing.count(0, routing_of(at::sigmoid(at::randn({64, 4})), bias, 1));
  balancing.end_step(at::zeros({}, at::kBool));
  EXPECT_TRUE(at::equal(bias, before));
}

}  // namespace
}  // namespace k3::train
