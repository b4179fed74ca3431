// prefill_plan.h. Times in us of one multiprocessor, as measured on an H200.
#include "kernels/cuda/kda/prefill_plan.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/kda/prefill_split.h"

namespace k3::cuda::kda::prefill_detail {
namespace {

constexpr double kStart = 10, kLine = 3;        // of a kernel; of a line of the state kernel
constexpr double kFactorRound = 11.2;           // two chunks on a multiprocessor, dealt out
constexpr double kFactorChunk = 5.4;            // a chunk while the state runs elsewhere
constexpr double kStateChunk = 2.2, kStateBeside = 1.76;  // alone; while the factors are made elsewhere
constexpr double kStateRanks = 1.19, kRanksStart = 1;     // the same on two multiprocessors
constexpr double kPairs = 28, kPairWave = 10;   // pairs and merge; each further wave of blocks
constexpr double kMergeStep = 0.5;              // 0 where gates forget, 2 with long memory
constexpr double kLongMemory = 10;              // a quarter of what a split takes longer where gates do not forget
constexpr double kIdle = 0.06;                  // of a multiprocessor without a segment
constexpr double kBesideStart = 18, kBesideLine = 9;      // both at once: until the first blocks; between two lines
constexpr double kMemory = 4e6;                 // bytes a us
constexpr double kStateChunkBytes = 106496;     // read and written

double factor_time(double chunks, int multiprocessors) {
  const double rounds = std::ceil(chunks / (2 * multiprocessors));
  return kFactorRound * (std::min(1.5, 0.3 + 0.5 * rounds) + rounds);
}
// The two hold each other up when they take the same time: a norm of high order.
double overlapped_time(std::int64_t chunks, int lines, int state_blocks, int ranks, int multiprocessors) {
  const std::int64_t all = lines * chunks, each = std::max(chunks, (all + state_blocks - 1) / state_blocks);
  const double parts = static_cast<double>(each) / chunks + (each % chunks ? 1 : 0),
               factors = kBesideStart + kFactorChunk * all / (multiprocessors - state_blocks * ranks),
               state = kBesideStart + (ranks == 1 ? kStateBeside * each : kRanksStart + kStateRanks * each) +
                       kBesideLine * parts;
  return std::pow(std::pow(factors, 10) + std::pow(state, 10), 1. / 10);
}
// Of pairs, merge and state, mostly for gates that forget: long memory adds about 40 us for any number of segments near
// the best one.
double split_time(std::int64_t chunks, int lines, int segments, int multiprocessors) {
  const auto waves = [&](double blocks) { return std::ceil(blocks / multiprocessors); };
  const double n = segments, each = (chunks + segments - 1) / segments;
  double time = kStart + std::max((each * kStateChunk + kLine) * waves(lines * n),
                                  lines * chunks * kStateChunkBytes / kMemory);
  if (segments > 1) {
    time += kLongMemory + kPairs + kPairWave * (waves(lines * (n - 1)) - 1) + kMergeStep * (n - 2);
    time += kIdle * std::max(0., multiprocessors - lines * n);
  }
  return time;
}

}  // namespace

Plan plan_prefill(std::int64_t chunks, int rows, int heads, int multiprocessors) {
  const int lines = rows * heads;
  if (chunks < 1 || lines < 1 || multiprocessors < 1) return {0, 1};
  const double factors = factor_time(static_cast<double>(lines) * chunks, multiprocessors);
  Plan plan{0, 1};
  double best = factors + split_time(chunks, lines, 1, multiprocessors);
  const auto consider = [&](double time, Plan other) {
    if (time < best) best = time, plan = other;
  };
  for (int n = 2; n <= kMostSegments && n <= chunks; ++n) {
    const std::int64_t each = (chunks + n - 1) / n;
    if ((chunks + each - 1) / each == n) consider(factors + split_time(chunks, lines, n, multiprocessors), {0, n});
  }
  for (int ranks : {1, 2})
    for (int state_blocks = 1; state_blocks <= lines && state_blocks * ranks < multiprocessors; ++state_blocks)
      consider(overlapped_time(chunks, lines, state_blocks, ranks, multiprocessors), {state_blocks, 1, ranks});
  return plan;
}

}  // namespace k3::cuda::kda::prefill_detail
