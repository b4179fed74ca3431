// Newton-Schulz, Muon and AdamW against the vectors of training.md 9.1 and against a step written out naively.
#include "train/optimizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "ops/mxfp4/mxfp4.h"
#include "train/newton_schulz.h"

namespace k3::train {
namespace {

Tensor matrix(std::vector<float> values, std::vector<std::int64_t> shape) { return at::tensor(values).view(shape); }

void expect_close(const Tensor& got, const Tensor& want, double tolerance) {
  const double difference = (got - want).abs().max().item<double>();
  EXPECT_LE(difference, tolerance) << "got\n" << got << "\nwant\n" << want;
}

ParameterRule whole(std::int64_t rows) {
  return {.update = Update::muon, .decay = true, .routed_expert = false, .period = rows, .parts = {{0, rows}}};
}
ParameterRule adamw(bool decay) {
  return {.update = Update::adamw, .decay = decay, .routed_expert = false, .period = 0, .parts = {}};
}

Tensor leaf(const Tensor& value) { return value.clone().requires_grad_(true); }

TEST(NewtonSchulz, MatchesPublishedTables) {
  const Tensor g = matrix({1, 2, 3, 4, 5, 7}, {1, 2, 3});
  expect_close(newton_schulz(g, newton_schulz_table("simple5"))[0],
               matrix({-.65918f, .19967f, .55250f, .55837f, .31845f, .34463f}, {2, 3}), 2e-5);
  expect_close(newton_schulz(g, newton_schulz_table("quintic5"))[0],
               matrix({-.68375f, .25994f, .66116f, .69038f, .45612f, .53006f}, {2, 3}), 2e-5);
  expect_close(newton_schulz(g, newton_schulz_table("deepseek_v4"))[0],
               matrix({-.69249f, .26437f, .67145f, .70153f, .46458f, .54045f}, {2, 3}), 2e-5);
}

TEST(NewtonSchulz, TallIsTheTransposeOfWide) {
  at::manual_seed(1);
  const Tensor tall = at::randn({3, 7, 5});
  const auto table = newton_schulz_table("quintic5");
  expect_close(newton_schulz(tall, table), newton_schulz(tall.transpose(1, 2), table).transpose(1, 2), 1e-6);
}

TEST(NewtonSchulz, ZeroStaysZero) {
  EXPECT_EQ(newton_schulz(at::zeros({2, 3, 4}), newton_schulz_table("simple5")).abs().max().item<float>(), 0.0f);
}

TEST(Optimizer, MuonStepOfTheReference) {
  const Tensor weight = leaf(at::full({2, 3}, 0.1));
  Optimizer optimizer({{"w", weight, weight, whole(2)}}, {});
  optimizer.begin_step();
  optimizer.accumulate({matrix({1, 2, 3, 4, 5, 7}, {2, 3})});
  optimizer.step(0.02, at::zeros({}));
  expect_close(weight.detach(), matrix({.104367f, .098417f, .095972f, .095932f, .097594f, .097412f}, {2, 3}), 2e-6);
}

// Property 9.6.1: heads of one stacked matrix move as if each were a parameter of its own; key and value rows of kv_b
// likewise.
TEST(Optimizer, PerHeadBlocksEqualSeparateMatrices) {
  at::manual_seed(2);
  const Tensor start = at::randn({2 * (3 + 2), 6}), gradient = at::randn({2 * (3 + 2), 6});
  const Tensor stacked = leaf(start);
  const ParameterRule rule{
      .update = Update::muon, .decay = true, .routed_expert = false, .period = 5, .parts = {{0, 3}, {3, 2}}};
  Optimizer together({{"kv_b", stacked, stacked, rule}}, {});
  std::vector<OptimizedTensor> parts;
  std::vector<Tensor> alone, gradients;
  for (const auto& [first, rows] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {3, 2}, {5, 3}, {8, 2}}) {
    alone.push_back(leaf(start.narrow(0, first, rows)));
    gradients.push_back(gradient.narrow(0, first, rows));
    parts.push_back({fmt::format("part{}", first), alone.back(), alone.back(), whole(rows)});
  }
  Optimizer separate(parts, {});
  for (int step = 0; step < 3; ++step) {
    for (auto* optimizer : {&together, &separate}) optimizer->begin_step();
    together.accumulate({gradient * (step + 1)});
    std::vector<Tensor> scaled;
    for (const Tensor& part : gradients) scaled.push_back(part * (step + 1));
    separate.accumulate(scaled);
    for (auto* optimizer : {&together, &separate}) optimizer->step(0.01, at::zeros({}));
  }
  std::vector<Tensor> joined;
  for (const Tensor& part : alone) joined.push_back(part.detach());
  expect_close(stacked.detach(), at::cat(joined), 1e-6);
}

TEST(Optimizer, AdamWEqualsTheFormula) {
  at::manual_seed(3);
  const Tensor start = at::randn({4, 3}), bias_start = at::randn({5});
  const Tensor weight = leaf(start), bias = leaf(bias_start);
  const OptimizerOptions options{
      .momentum = 0.95, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip_norm = 1.0};
  Optimizer optimizer({{"w", weight, weight, adamw(true)}, {"b", bias, bias, adamw(false)}}, options);
  Tensor w = start.clone(), b = bias_start.clone();
  Tensor mw = at::zeros_like(w), vw = at::zeros_like(w), mb = at::zeros_like(b), vb = at::zeros_like(b);
  for (int step = 1; step <= 3; ++step) {
    const Tensor gw = at::randn({4, 3}), gb = at::randn({5});
    optimizer.begin_step();
    optimizer.accumulate({gw * 0.25, gb * 0.25});  // two micro-batches
    optimizer.accumulate({gw * 0.75, gb * 0.75});
    optimizer.step(0.01, at::zeros({}));
    const double norm = std::sqrt(gw.square().sum().item<double>() + gb.square().sum().item<double>());
    EXPECT_NEAR(optimizer.gradient_norm().item<double>(), norm, 1e-5);
    const double clip = std::min(1.0, 1.0 / (norm + 1e-6));
    const auto move = [&](Tensor& p, Tensor& m, Tensor& v, const Tensor& g, double decay) {
      m = 0.9 * m + 0.1 * g * clip;
      v = 0.95 * v + 0.05 * (g * clip).square();
      p = p * (1 - 0.01 * decay) -
          0.01 * (m / (1 - std::pow(0.9, step))) / ((v / (1 - std::pow(0.95, step))).sqrt() + 1e-8);
    };
    move(w, mw, vw, gw, 0.1);
    move(b, mb, vb, gb, 0.0);
  }
  expect_close(weight.detach(), w, 1e-6);
  expect_close(bias.detach(), b, 1e-6);
}

TEST(Optimizer, NotFiniteFreezesEverythingFromThatStepOn) {
  at::manual_seed(4);
  const Tensor weight = leaf(at::randn({4, 4})), gain = leaf(at::randn({4}));
  Optimizer optimizer({{"w", weight, weight, whole(4)}, {"g", gain, gain, adamw(true)}}, {});
  const auto step = [&](const Tensor& gradient, const Tensor& loss) {
    optimizer.begin_step();
    optimizer.accumulate({gradient, at::ones({4})});
    optimizer.step(0.01, loss);
  };
  step(at::randn({4, 4}), at::ones({}));
  EXPECT_TRUE(optimizer.healthy().item<bool>());
  const auto before = optimizer.state();
  Tensor broken = at::randn({4, 4});
  broken[1][2] = std::numeric_limits<float>::quiet_NaN();
  step(broken, at::ones({}));
  step(at::randn({4, 4}), at::ones({}));  // steps that were queued before anyone looked
  EXPECT_FALSE(optimizer.healthy().item<bool>());
  const auto after = optimizer.state();
  for (std::size_t index = 0; index < before.size(); ++index)
    EXPECT_TRUE(at::equal(before[index].second, after[index].second)) << before[index].first;
}

TEST(Optimizer, StateRoundTripContinuesBitForBit) {
  at::manual_seed(5);
  const Tensor start = at::randn({6, 4}), gain_start = at::randn({4});
  const auto make = [&](Tensor& weight, Tensor& gain) {
    weight = leaf(start);
    gain = leaf(gain_start);
    return Optimizer({{"w", weight, weight, whole(3)}, {"g", gain, gain, adamw(true)}}, {});
  };
  std::vector<Tensor> gradients;
  for (int step = 0; step < 4; ++step) gradients.push_back(at::randn({6, 4}));
  Tensor w1, g1, w2, g2;
  Optimizer straight = make(w1, g1), resumed = make(w2, g2);
  const auto run = [&](Optimizer& optimizer, int first, int last) {
    for (int step = first; step < last; ++step) {
      optimizer.begin_step();
      optimizer.accumulate({gradients[static_cast<std::size_t>(step)], gradients[static_cast<std::size_t>(step)][0]});
      optimizer.step(0.02, at::zeros({}));
    }
  };
  run(straight, 0, 2);
  std::map<std::string, Tensor> saved;
  for (const auto& [name, tensor] : straight.state()) saved[name] = tensor.clone();
  run(straight, 2, 4);
  resumed.load_state([&](const std::string& name) { return saved.at(name); }, 2);
  run(resumed, 2, 4);
  EXPECT_TRUE(at::equal(w1.detach(), w2.detach()));
  EXPECT_TRUE(at::equal(g1.detach(), g2.detach()));
}

TEST(Optimizer, ExpertsAreRoundedAndMastersAreNot) {
  at::manual_seed(6);
  const Tensor master = at::randn({3, 8, 32}) * 0.02;
  const Tensor experts = at::empty({3, 8, 32}, at::kBFloat16).requires_grad_(true);
  const Tensor plain_master = at::randn({3 * 8, 32});
  const Tensor plain = at::empty({24, 32}, at::kBFloat16).requires_grad_(true);
  ParameterRule rule{.update = Update::muon, .decay = true, .routed_expert = true, .period = 8, .parts = {{0, 8}}};
  ParameterRule same_shape{
      .update = Update::muon, .decay = true, .routed_expert = false, .period = 8, .parts = {{0, 8}}};
  OptimizerOptions options;
  options.quantize_experts = true;
  Optimizer optimizer({{"plain", plain, plain_master, same_shape}, {"experts", experts, master, rule}}, options);
  EXPECT_TRUE(at::equal(experts.detach().to(at::kFloat), ops::mxfp4_round(master)));
  EXPECT_TRUE(at::equal(plain.detach(), plain_master.to(at::kBFloat16)));
  for (const auto& [name, tensor] : optimizer.state()) {
    if (name != "master.experts") continue;
    EXPECT_TRUE(at::equal(tensor, master));
  }
}

}  // namespace
}  // namespace k3::train
