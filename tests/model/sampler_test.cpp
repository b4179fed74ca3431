// The sampler: cuts, frequencies, log-probabilities, independence of everything but seed, stream and position.
#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "support/files.h"

namespace k3 {
namespace {

const Tensor kRow = at::tensor({2.0, 1.0, 0.0, -1.0, -2.0, 2.0}, at::kDouble);

std::map<std::int64_t, int> counts(const SamplingOptions& options, int draws) {
  std::map<std::int64_t, int> result;
  for (int position = 0; position < draws; ++position) ++result[sample(kRow, options, 0, position).id];
  return result;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) { EXPECT_EQ(sample(kRow, {}, 0, 0).id, 0); }

TEST(Sampler, FrequenciesFollowTheProbabilities) {
  SamplingOptions options;
  options.temperature = 0.7;
  const Tensor probabilities = at::softmax(kRow / options.temperature, 0);
  constexpr int draws = 20000;
  const auto seen = counts(options, draws);
  double chi_square = 0;
  for (std::int64_t id = 0; id < kRow.numel(); ++id) {
    const double expected = draws * probabilities[id].item<double>();
    const double difference = (seen.contains(id) ? seen.at(id) : 0) - expected;
    chi_square += difference * difference / expected;
  }
  EXPECT_LT(chi_square, 20.5) << "5 degrees of freedom, 0.1 %";
}

TEST(Sampler, CutsKeepExactlyTheTokensTheyName) {
  const auto ids = [](const SamplingOptions& options) {
    std::set<std::int64_t> kept;
    for (const auto& [id, count] : counts(options, 2000)) kept.insert(id);
    return kept;
  };
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 2;
  EXPECT_EQ(ids(options), (std::set<std::int64_t>{0, 5}));
  options.top_k = 0;
  options.top_p = 0.7;  // 0.39 + 0.39
  EXPECT_EQ(ids(options), (std::set<std::int64_t>{0, 5}));
  options.top_p = 0.8;
  EXPECT_EQ(ids(options), (std::set<std::int64_t>{0, 1, 5}));
  options.top_p = 1;
  options.min_p = 0.3;  // exp(-1) = 0.37, exp(-2) = 0.14
  EXPECT_EQ(ids(options), (std::set<std::int64_t>{0, 1, 5}));
}

TEST(Sampler, OnlySeedStreamAndPositionDecide) {
  SamplingOptions options;
  options.temperature = 1;
  const auto draw = [&](std::uint64_t stream) {
    std::vector<std::int64_t> ids;
    for (int position = 0; position < 40; ++position) ids.push_back(sample(kRow, options, stream, position).id);
    return ids;
  };
  const auto first = draw(1);
  EXPECT_EQ(draw(1), first);
  EXPECT_NE(draw(2), first);
  options.seed = 1;
  EXPECT_NE(draw(1), first);
}

TEST(Sampler, LogProbabilitiesAreTheModelsOwn) {
  SamplingOptions options;
  options.temperature = 0.3;
  options.top_k = 2;
  const Tensor expected = at::log_softmax(kRow, 0);
  const Sampled token = sample(kRow.to(at::kFloat), options, 0, 5, 3);
  EXPECT_NEAR(token.logprob, expected[token.id].item<double>(), 1e-6);
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].first, 0);
  EXPECT_EQ(token.top[1].first, 5);
  EXPECT_EQ(token.top[2].first, 1);
  EXPECT_NEAR(token.top[2].second, expected[1].item<double>(), 1e-6);
}

TEST(Sampler, RefusesOptionsOutOfRangeAndDamagedLogits) {
  const auto with = [](auto change) {
    return [change] {
      SamplingOptions options;
      change(options);
      check_sampling(options);
    };
  };
  test::expect_user_error(with([](auto& o) { o.temperature = -1; }), {"--temperature", "-1"});
  test::expect_user_error(with([](auto& o) { o.temperature = NAN; }), {"--temperature"});
  test::expect_user_error(with([](auto& o) { o.top_p = 0; }), {"--top-p"});
  test::expect_user_error(with([](auto& o) { o.top_k = -3; }), {"--top-k", "-3"});
  test::expect_user_error(with([](auto& o) { o.min_p = 1.5; }), {"--min-p", "1.5"});
  test::expect_user_error([] { sample(at::full({3}, NAN), {}, 0, 7); }, {"position 7", "not finite"});
}

}  // namespace
}  // namespace k3
