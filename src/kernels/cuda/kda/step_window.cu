// The token step for rows of any number of tokens (step.h): verification, replay, short prompts. One block a row and
// head; the row in chunks of up to 8 tokens, whose raw values come while the chunk before is worked on.
//
// Two blocks of 256 threads a multiprocessor leave few warps to hide latencies, so the phases are short: no branches
// between the tokens of a phase, a barrier of two warps where only the two halves of the keys meet, and the small
// loads, which everything waits for first, in front of the state's.
#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/dispatch.h"
#include "kernels/cuda/kda/step_drafts.cuh"
#include "kernels/cuda/kda/step_row.cuh"

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
template <int kDim, class E>
__device__ __forceinline__ void fetch(const StepArguments& a, Shared<kDim, E>& s, int head, const Row& row, int begin,
                                      int count, int buffer) {
  constexpr int kElements = 16 / sizeof(E), kPieces = kDim / kElements;
  const int thread = opaque(threadIdx.x) % kDim, first = row.first + begin;
  const bool rest = threadIdx.x >= kDim;
#pragma unroll 1
  for (int i = thread; i < count * kPieces; i += kDim) {
    const int t = i / kPieces, offset = i % kPieces * kElements;
    const auto copy = [&](E* to, const Rows& from) {
      copy_async_16(to + offset, at<E>(from, first + t, head) + offset);
    };
    if (rest) {
      copy(s.raw[3][t], a.z), copy(s.gate[buffer][t], a.gate);
    } else {
      copy(s.raw[0][t], a.q), copy(s.raw[1][t], a.k), copy(s.raw[2][t], a.v);
    }
  }
  if (begin == 0 && threadIdx.x < kDim / 4) copy_async_16(s.norm_weight + 4 * thread, a.norm_weight + 4 * thread);
  if (rest && begin == 0) {
#pragma unroll 1
    for (int i = thread; i < 3 * kPast * kPieces; i += kDim) {
      const int line = i / kPieces, offset = i % kPieces * kElements;
      copy_async_16(&s.window[line][offset], window_at<E>(a, row.slot, line, head) + offset);
    }
  }
  copy_async_commit();
}

// The state of the block that comes `ahead` places later is asked into the L2, behind the block's own loads.
template <int kDim>
__device__ __forceinline__ void prefetch_state(const StepArguments& a, int slot, int head) {
  if (threadIdx.x == 0 && slot >= 0)
    prefetch_l2_bulk(a.state + (static_cast<std::int64_t>(slot) * a.heads + head) * kDim * kDim,
                     kDim * kDim * sizeof(float));
}

template <int kDim, class E>
__global__ void __launch_bounds__(2 * kDim, kDim == 128 ? 2 : 4) window_kernel(StepArguments a, int ahead) {
  constexpr int kLane = Map<kDim>::kLane, kWarps = Map<kDim>::kWarps;
  auto& s = *shared_memory<Shared<kDim, E>>();
  const auto map = [] { return Map<kDim>(opaque(threadIdx.x)); };
  const Row& row = s.row;  // read again behind every barrier, which keeps it out of the registers
  const auto state = [&](int slot) {
    return a.state + (static_cast<std::int64_t>(slot) * a.heads + blockIdx.x) * kDim * kDim;
  };
  const auto place = [&] { return opaque(blockIdx.y) * a.heads + blockIdx.x + ahead; };  // of the later item
  Tile<kDim> tile;
  await_previous_kernel();
  {
    const Row own = row_at(a, blockIdx.y);
    const int later_row = place() / a.heads, later_slot = later_row < a.rows ? a.slots[later_row] : -1;
    if (own.tokens <= 0) {
      prefetch_state<kDim>(a, later_slot, place() % a.heads);
      release_next_kernel();
      return;
    }
    fetch(a, s, blockIdx.x, own, 0, chunk_tokens(own, 0), 0);
    if (threadIdx.x == 0) s.row = own, s.later_slot = later_slot;
    if (threadIdx.x < kDim) s.ones[threadIdx.x] = 1.f;
  }
  __syncthreads();
  for (int begin = 0, count, buffer = 0; begin < row.tokens; begin += count, buffer ^= 1) {
    count = chunk_tokens(row, begin);
    Stream<kDim, E> stream(a, opaque(blockIdx.x), map().thread);
    const float b = threadIdx.x < count ? load1(at<E>(a.b, row.first + begin + threadIdx.x, blockIdx.x)) : 0.f;
    if (begin == 0) {
      tile.load(map(), state(row.slot));
      prefetch_state<kDim>(a, s.later_slot, place() % a.heads);
      release_next_kernel();
    }
    copy_async_wait<0>();
    __syncthreads();
    stream.load_window(s);
    stream.prepare(s, count, row.commit - begin, row.slot, a.lower_bound, map());
    if (threadIdx.x < count) s.beta[threadIdx.x] = gate_sigmoid(b);
    const bool last = begin + count == row.tokens;
    if (!last) stream.keep_window(s, count);
    __syncthreads();
    if (!last)
      fetch(a, s, opaque(blockIdx.x), row, begin + count, chunk_tokens(row, begin + count), buffer ^ 1);

    // singly tokens one by one, then drafts.
    const int committed = max(0, min(count, row.commit - begin)),
              singly = last && count - committed <= kFewDrafts ? count : committed;
    const int drafts = count - singly;
    if (drafts > 0) meet_drafts(s, map(), singly, drafts);
    for (int t = 0; t < singly; ++t) {
      tile.decay_and_meet(s, map(), t);
      const float length = s.inverse_length(1, t);
      if (t + 1 < singly) pair_barrier(map());
      else __syncthreads();
      float u[4];
      solve(s, t, length, map().column, u);
      tile.add(s.k(t), map(), u);
      if (begin + t + 1 == row.commit) tile.store(map(), state(row.slot));
    }
    if (drafts > 0) {
      if (singly == 0) __syncthreads();
      meet_state(s, map(), singly, tile);
      solve_drafts(s, map(), singly, drafts);
      if (!last) restore_keys(s, map(), singly, drafts);
      __syncthreads();
    }
    for (int i = map().warp; i < count; i += kWarps) {
      const int lane = map().lane, t = i < drafts ? singly + i : i - drafts;
      float o[kLane], gate[kLane], weight[kLane];
      load_lane(gate, &s.gate[buffer][t][kLane * lane]), load_lane(weight, s.norm_weight + kLane * lane);
      if (i < drafts) draft_output<kDim>(s, lane, t, o);
      else token_output<kDim>(s, lane, t, o);
      store_output<kDim, E>(a, row.first + begin + t, blockIdx.x, lane, o, gate, weight);
    }
    if (!last && drafts > 0) absorb_drafts(s, map(), singly, drafts, tile);
  }
}

}  // namespace

cudaError_t launch_window(const StepArguments& a, cudaStream_t stream) {
  return dispatch(a.dim, a.type, [&]<int kDim, class E>() {
    return launch_chained(window_kernel<kDim, E>, dim3(a.heads, a.rows), 2 * kDim, sizeof(Shared<kDim, E>), stream, a,
                          multiprocessors());
  });
}

}  // namespace k3::cuda::kda::step_detail
