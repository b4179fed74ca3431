// The token loop: chunked prefill, batched continuation equal to one at a time, stop ids, refusal of bad prompts.
#include "model/generate.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace k3 {
namespace {

const Model& tiny() {
  static const Model model = [] {
    LoadOptions options;
    options.dtype = at::kDouble;
    options.keep_experts_packed = false;
    return load_model(test::data("golden/k3-tiny"), options);
  }();
  return model;
}

StatePool pool_of(std::int64_t slots) { return StatePool::make(tiny().config, slots, 256, at::kCPU, at::kDouble); }

std::vector<std::int64_t> alone(const std::vector<std::int64_t>& prompt, const GenerateOptions& options, std::uint64_t stream) {
  StatePool pool = pool_of(1);
  Tensor row = prefill(tiny(), pool, 0, prompt);
  std::vector<std::int64_t> ids;
  while (true) {
    ids.push_back(sample(row, options.sampling, stream, pool.lengths[0]).id);
    if (std::count(options.stop_ids.begin(), options.stop_ids.end(), ids.back()) > 0) return ids;
    if (static_cast<std::int64_t>(ids.size()) == options.max_tokens) return ids;
    const std::int64_t slot = 0;
    row = decode_step(tiny(), pool, std::span(&slot, 1), std::span(&ids.back(), 1))[0];
  }
}

const std::vector<std::vector<std::int64_t>> kPrompts = {{5, 9, 200, 31}, {7}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {500, 3}, {44, 44, 44}};

TEST(Generate, ChunksOfAPromptDoNotChangeItsLogits) {
  StatePool whole = pool_of(1), pieces = pool_of(1);
  const Tensor a = prefill(tiny(), whole, 0, kPrompts[2]), b = prefill(tiny(), pieces, 0, kPrompts[2], 3);
  EXPECT_TRUE(at::allclose(a, b, 1e-9, 1e-9));
  EXPECT_EQ(whole.lengths[0], pieces.lengths[0]);
}

TEST(Generate, ABatchEqualsEachPromptAlone) {
  for (const double temperature : {0.0, 1.0}) {
    GenerateOptions options;
    options.max_tokens = 7;
    options.sampling.temperature = temperature;
    options.sampling.seed = 11;
    for (const std::int64_t slots : {1, 2, 5}) {
      const auto results = generate_batch(tiny(), kPrompts, options, slots);
      for (std::size_t i = 0; i < kPrompts.size(); ++i)
        EXPECT_EQ(results[i], alone(kPrompts[i], options, i)) << "prompt " << i << ", " << slots << " slots, temperature " << temperature;
    }
  }
}

TEST(Generate, StopIdsEndASequence) {
  GenerateOptions options;
  options.max_tokens = 7;
  const auto free = generate_batch(tiny(), kPrompts, options);
  options.stop_ids = {free[0][2]};
  const auto stopped = generate_batch(tiny(), kPrompts, options);
  EXPECT_LE(stopped[0].size(), 3u);
  EXPECT_EQ(stopped[0].back(), free[0][2]);
}

TEST(Generate, ContinueSlotLeavesTheLastTokenUnfed) {
  StatePool pool = pool_of(1);
  const Tensor row = prefill(tiny(), pool, 0, kPrompts[0]);
  int tokens = 0;
  continue_slot(tiny(), pool, 0, row, {}, 0, [&](const Sampled&) { return ++tokens < 5; });
  EXPECT_EQ(tokens, 5);
  EXPECT_EQ(pool.lengths[0], 4 + 4);
}

TEST(Generate, RefusesPromptsItCannotTake) {
  const ModelConfig& config = tiny().config;
  const std::vector<std::int64_t> none, unknown = {1, config.vocab}, negative = {-1}, fine = {1, 2, 3};
  test::expect_user_error([&] { check_prompt(config, none, 1); }, {"empty"});
  test::expect_user_error([&] { check_prompt(config, unknown, 1); }, {std::to_string(config.vocab), "position 1", "vocabulary"});
  test::expect_user_error([&] { check_prompt(config, negative, 1); }, {"-1", "vocabulary"});
  test::expect_user_error([&] { check_prompt(config, fine, config.max_context); }, {"do not fit", std::to_string(config.max_context)});
}

}  // namespace
}  // namespace k3
