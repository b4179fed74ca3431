// prefill_plan.h. Times in us of one multiprocessor, as measured on an H200.
#include "kernels/cuda/kda/prefill_plan.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/kda/prefill_split.h"

namespace k3::cuda::kda::prefill_detail {
namespace {

constexpr double kStart = 10, kLine = 3;        // of a kernel; of a line of the state kernel
constexpr double kFactorRound = 12.4;           // two chunks on a multiprocessor
constexpr double kStateChunk = 2.2, kPairChunk = 0.9, kMergeStep = 3;
constexpr double kBeside = 1.15;                // both kernels at the same time slow each other down
constexpr double kMemory = 4e6;                 // bytes a us
constexpr double kStateChunkBytes = 106496, kPairChunkBytes = 49664;  // read and written
constexpr int kMergeBlocks = 8;                 // of a line

double factor_time(double chunks, int multiprocessors) {
  return kFactorRound * (1.5 + std::ceil(chunks / (2 * multiprocessors)));
}
double overlapped_time(std::int64_t chunks, int lines, int state_blocks, int multiprocessors) {
  const int turns = (lines + state_blocks - 1) / state_blocks;
  const double factors = factor_time(static_cast<double>(lines) * chunks, multiprocessors - state_blocks),
               state = (kStateChunk * chunks + kLine) * turns;
  return 1.5 * kFactorRound + kBeside * std::max(factors, state);
}
// Of pairs, merge and state.
double split_time(std::int64_t chunks, int lines, int segments, int multiprocessors) {
  const auto waves = [&](double blocks) { return std::ceil(blocks / multiprocessors); };
  const double n = segments, each = (chunks + segments - 1) / segments;
  double time = kStart + std::max((each * kStateChunk + kLine) * waves(lines * n),
                                  lines * chunks * kStateChunkBytes / kMemory);
  if (segments > 1)
    time += kStart + std::max(each * kPairChunk * waves(lines * (2 * n - 3)),
                              lines * (n - 1) * each * kPairChunkBytes / kMemory);
  if (segments > 2) time += 2 + (n - 2) * kMergeStep * waves(lines * kMergeBlocks);
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
  for (int state_blocks = 1; state_blocks <= lines && state_blocks < multiprocessors; ++state_blocks)
    consider(overlapped_time(chunks, lines, state_blocks, multiprocessors), {state_blocks, 1});
  return plan;
}

}  // namespace k3::cuda::kda::prefill_detail
