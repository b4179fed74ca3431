// The token step for rows of any number of tokens (step.h): verification, replay, short prompts. One block a row and
// head; the row in chunks of up to 8 tokens, whose raw values come while the chunk before is worked on. Rows that the
// host knows to be one chunk have their own instance (kWhole), without the loop.
//
// Two blocks of 256 threads a multiprocessor leave few warps to hide latencies, so the phases are short: no branches
// between the tokens of a phase, its loads in front of its first store, a barrier of two warps where only the two
// halves of the keys meet. The small loads, which everything waits for first, go in front of the state's, and both are
// asked into the L2 by a block that comes before. Committed tokens precede the drafts' preparation, during which the
// state is on its way back.
#include "kernels/cuda/common/cache_hints.cuh"
#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/dispatch.h"
#include "kernels/cuda/kda/step_drafts.cuh"
#include "kernels/cuda/kda/step_stream.cuh"

namespace k3::cuda::kda::step_detail {
namespace {

constexpr int kFewDrafts = 2;  // so many at a row's end are cheaper one by one than in chunk form

// Without a slot: no tokens. The loads do not wait for each other.
__device__ __forceinline__ Row row_at(const StepArguments& a, int row) {
  const int slot = a.slots[row], first = a.starts[row], end = a.starts[row + 1];
  const int commit = a.commit ? a.commit[row] : 0x7fffffff, tokens = slot >= 0 ? end - first : 0;
  return {slot, first, tokens, min(commit, tokens)};
}

// Tokens of the chunk that starts here. Committed ones go alone where that costs no chunk more, since drafts in front
// of other drafts have to be absorbed by the state, and where there are too many of them.
__device__ __forceinline__ int chunk_tokens(const Row& row, int begin) {
  const int left = row.tokens - begin, committed = max(0, row.commit - begin);
  const auto chunks = [](int tokens) { return (tokens + kChunk - 1) / kChunk; };
  const bool apart = left > kChunk ? committed > kSingles || (committed > 0 && chunks(left - committed) < chunks(left))
                                   : committed > kSingles && left - committed > kFewDrafts;
  return min(kChunk, apart ? committed : left);
}

// Line 3 i + which of a slot's window: raw token i of q, k or v.
template <class E>
__device__ __forceinline__ const E* window_at(const StepArguments& a, int slot, int line, int head) {
  return static_cast<const E*>(a.window) +
         ((static_cast<std::int64_t>(slot) * 3 * kPast + line) * a.heads + head) * a.dim;
}

// Raw values of tokens, and in front of a row's first ones the window. One half of the block fetches q, k and v, the
// other one the rest.
template <class S>
__device__ __forceinline__ void fetch(const StepArguments& a, S& s, int head, const Row& row, int begin, int count) {
  using E = typename S::E;
  constexpr int kDim = S::kDim, kElements = 16 / sizeof(E), kPieces = kDim / kElements;
  const unsigned thread = static_cast<unsigned>(opaque(threadIdx.x)) % kDim;
  const int first = row.first + begin;
  const bool rest = threadIdx.x >= kDim;
#pragma unroll
  for (unsigned i = thread; i < kChunk * kPieces; i += kDim) {
    const int t = i / kPieces, offset = i % kPieces * kElements;
    if (t >= count) break;
    const auto copy = [&](E* to, const Rows& from) {
      copy_async_16(to + offset, at<E>(from, first + t, head) + offset);
    };
    if (rest) {
      copy(s.raw[3][t], a.z);
    } else {
      copy(s.raw[0][t], a.q), copy(s.raw[1][t], a.k), copy(s.raw[2][t], a.v);
    }
  }
  if (begin == 0 && threadIdx.x < kDim / 4) copy_async_16(s.norm_weight + 4 * thread, a.norm_weight + 4 * thread);
  if (rest && begin == 0) {
#pragma unroll
    for (unsigned i = thread; i < 3 * kPast * kPieces; i += kDim) {
      const int line = i / kPieces, offset = i % kPieces * kElements;
      copy_async_16(&s.window[line][offset], window_at<E>(a, row.slot, line, head) + offset);
    }
  }
  copy_async_commit();
}

// The raw tokens and the window of a later block are asked into the L2, by the half of this block that has fewer loads
// of its own.
template <int kDim, class E>
__device__ __forceinline__ void prefetch_tokens(const StepArguments& a, const Row& row, int head) {
  constexpr int kLine = 128 / sizeof(E), kLines = (kDim + kLine - 1) / kLine;  // of a token's row
  if (threadIdx.x < kDim || row.tokens <= 0) return;
  for (int i = threadIdx.x - kDim; i < (5 * kChunk + 3 * kPast) * kLines; i += kDim) {
    const int which = i / kLines, offset = i % kLines * kLine, t = which % kChunk, stream = which / kChunk;
    if (stream >= 5) {
      prefetch_l2(window_at<E>(a, row.slot, which - 5 * kChunk, head) + offset);
    } else if (t < row.tokens) {
      const Rows rows = stream == 0 ? a.q : stream == 1 ? a.k : stream == 2 ? a.v : stream == 3 ? a.z : a.gate;
      prefetch_l2(at<E>(rows, row.first + t, head) + offset);
    }
  }
}

// `ahead`: how many rows and heads later the block comes whose loads are asked for.
template <class S>
__global__ void __launch_bounds__(2 * S::kDim, S::kDim == 128 ? 2 : 4) window_kernel(StepArguments a, int2 ahead) {
  using E = typename S::E;
  constexpr int kDim = S::kDim, kLane = Map<kDim>::kLane, kWarps = Map<kDim>::kWarps;
  auto& s = *shared_memory<S>();
  const auto map = [] { return Map<kDim>(opaque(threadIdx.x)); };
  const Row& row = s.row;  // read again behind every barrier, which keeps it out of the registers
  const auto state_of = [&](int slot, int head) {
    return a.state + (static_cast<std::int64_t>(slot) * a.heads + head) * kDim * kDim;
  };
  int begin = 0, count;
  float b;
  Packed<kLane, E> gates[kChunk / kWarps];  // of the tokens whose outputs are this warp's
  const auto load_late = [&](int first) {   // what is not needed at once
    b = threadIdx.x < count ? load1(at<E>(a.b, first + threadIdx.x, blockIdx.x)) : 0.f;
#pragma unroll
    for (int i = 0; i < kChunk / kWarps; ++i) {
      const int t = map().warp + kWarps * i;
      if (t < count) gates[i] = load_packed<kLane>(at<E>(a.gate, first + t, blockIdx.x) + kLane * map().lane);
    }
  };
  if (threadIdx.x == 0) Tile<S>::open(s);
  await_previous_kernel();
  Stream<kDim, E> stream(a, blockIdx.x, threadIdx.x);
  Tile<S> tile;
  {
    const Row own = row_at(a, blockIdx.y);
    const int over = blockIdx.x + ahead.y >= a.heads, later_row = blockIdx.y + ahead.x + over,
              later_head = blockIdx.x + ahead.y - over * a.heads;
    const Row later = later_row < a.rows ? row_at(a, later_row) : Row{-1, 0, 0, 0};
    const auto prefetch_state = [&] {
      if (threadIdx.x == 0 && later.slot >= 0)
        prefetch_l2_bulk(state_of(later.slot, later_head), kDim * kDim * sizeof(float));
    };
    if (own.tokens <= 0) {
      prefetch_state();
      release_next_kernel();
      return;
    }
    if (S::kStaged) __syncthreads();  // the stage is open
    count = S::kWhole ? own.tokens : chunk_tokens(own, 0);
    fetch(a, s, blockIdx.x, own, 0, count);
    load_late(own.first);
    tile.fetch(s, map(), state_of(own.slot, blockIdx.x));
    prefetch_tokens<kDim, E>(a, later, later_head);
    prefetch_state();  // behind the block's own copies, which it would hold up
    release_next_kernel();
    if (threadIdx.x == 0) s.row = own;
    if (threadIdx.x < kDim) s.ones[threadIdx.x] = 1.f;
  }
  while (true) {
    copy_async_wait<0>();
    __syncthreads();
    stream.load_window(s);
    stream.prepare(s, count, row.commit - begin, row.slot, a.lower_bound, map());
    if (threadIdx.x < count) s.beta[threadIdx.x] = gate_sigmoid(b);
    const bool last = S::kWhole || begin + count == row.tokens;
    if (!last) stream.keep_window(s, count);
    __syncthreads();
    if (!last) fetch(a, s, opaque(blockIdx.x), row, begin + count, chunk_tokens(row, begin + count));
    if (begin == 0) tile.take(s, map());

    // singly tokens one by one, then drafts.
    const int committed = max(0, min(count, row.commit - begin)),
              singly = last && count - committed <= kFewDrafts ? count : committed;
    const int drafts = count - singly;
    for (int t = 0; t < singly; ++t) {
      tile.decay_and_meet(s, map(), t);
      const float length = s.inverse_length(1, t);
      pair_barrier(map());
      float u[4];
      solve(s, t, length, map().column, u);
      tile.add(s, map(), t, u, begin + t + 1 == row.commit ? state_of(row.slot, blockIdx.x) : nullptr);
    }
    if (drafts > 0) meet_drafts(s, map(), singly, drafts);
    __syncthreads();
    if (drafts > 0) {
      meet_state(s, map(), singly, tile);
      solve_drafts(s, map(), singly, drafts);
      if (!last) restore_keys(s, map(), singly, drafts);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kChunk / kWarps; ++i) {
      const int lane = map().lane, t = map().warp + kWarps * i;
      if (t >= count) break;
      float o[kLane], gate[kLane], weight[kLane];
      load_lane(gate, gates[i].x), load_lane(weight, s.norm_weight + kLane * lane);
      if (t >= singly) draft_output<kDim>(s, lane, t, o);
      else token_output<kDim>(s, lane, t, o);
      store_output<kDim, E>(a, row.first + begin + t, blockIdx.x, lane, o, gate, weight);
    }
    if (last) break;
    if (drafts > 0) absorb_drafts(s, map(), singly, drafts, tile);
    begin += count, count = chunk_tokens(row, begin);
    stream = Stream<kDim, E>(a, opaque(blockIdx.x), map().thread);
    load_late(row.first + begin);
  }
  Tile<S>::close();
}

}  // namespace

cudaError_t launch_window(const StepArguments& a, cudaStream_t stream) {
  return dispatch(a.dim, a.type, [&]<int kDim, class E>() {
    const auto run = [&]<bool kWhole, bool kStaged>() {
      using S = Shared<kDim, E, kWhole, kStaged>;
      const int ahead = multiprocessors() / 2;
      return launch_chained(window_kernel<S>, dim3(a.heads, a.rows), 2 * kDim, sizeof(S), stream, a,
                            int2{ahead / a.heads, ahead % a.heads});
    };
    const auto run_staged = [&]<bool kStaged>() {
      return a.longest > 0 && a.longest <= kChunk ? run.template operator()<true, kStaged>()
                                                  : run.template operator()<false, kStaged>();
    };
    if constexpr (kDim == 128 && sizeof(E) == 2)
      if (device_capability() >= 90) return run_staged.template operator()<true>();
    return run_staged.template operator()<false>();
  });
}

}  // namespace k3::cuda::kda::step_detail
