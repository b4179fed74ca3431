// The token step for rows of any number of tokens (step.h): verification, replay, short prompts. One block a row and
// head; the row in chunks of up to 8 tokens, whose raw values come while the chunk before is worked on.
#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/dispatch.h"
#include "kernels/cuda/kda/step_drafts.cuh"
#include "kernels/cuda/kda/step_row.cuh"

namespace k3::cuda::kda::step_detail {
namespace {

constexpr int kFewDrafts = 2;  // so many at a row's end are cheaper one by one than in chunk form

// Tokens of the chunk that starts here: all that are left, or those of one kind, committed or drafts.
__device__ __forceinline__ int chunk_tokens(const Row& row, int begin) {
  const int left = row.tokens - begin;
  return left <= kChunk ? left : min(kChunk, begin < row.commit ? row.commit - begin : left);
}

template <int kDim, class E>
__device__ __forceinline__ void fetch(const StepArguments& a, Shared<kDim, E>& s, int head, int first, int count,
                                      int buffer) {
  constexpr int kElements = 16 / sizeof(E), kPieces = kDim / kElements;
  for (int i = opaque(threadIdx.x); i < count * kPieces; i += 2 * kDim) {
    const int t = i / kPieces, offset = i % kPieces * kElements;
    copy_async_16(&s.raw[0][t][offset], at<E>(a.q, first + t, head) + offset);
    copy_async_16(&s.raw[1][t][offset], at<E>(a.k, first + t, head) + offset);
    copy_async_16(&s.raw[2][t][offset], at<E>(a.v, first + t, head) + offset);
    copy_async_16(&s.raw[3][t][offset], at<E>(a.z, first + t, head) + offset);
    copy_async_16(&s.gate[buffer][t][offset], at<E>(a.gate, first + t, head) + offset);
  }
  copy_async_commit();
}

template <int kDim, class E>
__global__ void __launch_bounds__(2 * kDim, kDim == 128 ? 2 : 4) window_kernel(StepArguments a, int ahead) {
  constexpr int kLane = Map<kDim>::kLane, kWarps = Map<kDim>::kWarps;
  auto& s = *shared_memory<Shared<kDim, E>>();
  await_previous_kernel();
  {
    Row own{a.slots[blockIdx.y], a.starts[blockIdx.y], 0, 0};
    own.tokens = a.starts[blockIdx.y + 1] - own.first;
    own.commit = a.commit ? min(a.commit[blockIdx.y], own.tokens) : own.tokens;
    prefetch_state<kDim>(a, blockIdx.y, blockIdx.x, ahead);
    if (own.slot < 0) return;
    if (threadIdx.x == 0) s.row = own;
    fetch(a, s, blockIdx.x, own.first, chunk_tokens(own, 0), 0);
  }
  if (threadIdx.x < kDim) s.norm_weight[threadIdx.x] = a.norm_weight[threadIdx.x];
  __syncthreads();
  const Row& row = s.row;  // read again behind every barrier, which keeps it out of the registers
  const auto state = [&] {
    return a.state + (static_cast<std::int64_t>(row.slot) * a.heads + blockIdx.x) * kDim * kDim;
  };
  Tile<kDim> tile;
  for (int begin = 0, count, buffer = 0; begin < row.tokens; begin += count, buffer ^= 1) {
    count = chunk_tokens(row, begin);
    const int head = opaque(blockIdx.x);
    const Map<kDim> map(opaque(threadIdx.x));
    Stream<kDim, E> stream(a, head, map.thread);
    const float b = map.thread < count ? load1(at<E>(a.b, row.first + begin + map.thread, head)) : 0.f;
    if (begin == 0) stream.read_window(row.slot), tile.load(map, state());
    else stream.load_window(s);
    if (begin == 0) release_next_kernel();
    copy_async_wait<0>();
    __syncthreads();
    if (map.thread < count) s.beta[map.thread] = gate_sigmoid(b);
    stream.prepare(s, count, row.commit - begin, row.slot, a.lower_bound, map);
    const bool last = begin + count == row.tokens;
    if (!last) stream.keep_window(s);
    __syncthreads();
    if (!last) fetch(a, s, head, row.first + begin + count, chunk_tokens(row, begin + count), buffer ^ 1);

    const auto output = [&](int t, float(&o)[kLane]) {
      const int lane = opaque(threadIdx.x) % 32;
      float gate[kLane], weight[kLane];
      load_lane(gate, &s.gate[buffer][t][kLane * lane]), load_lane(weight, s.norm_weight + kLane * lane);
      store_output<kDim, E>(a, row.first + begin + t, blockIdx.x, lane, o, gate, weight);
    };
    const int committed = max(0, min(count, row.commit - begin)),
              singly = last && count - committed <= kFewDrafts ? count : committed;
    const int drafts = count - singly;
    if (drafts > 0) meet_drafts(s, map, singly, drafts);
    for (int t = 0; t < singly; ++t) {
      tile.decay_and_meet(s, map, t, t % 2);
      __syncthreads();
      float u[4];
      solve<kDim, 4>(s, t, t % 2, map.column, u);
      tile.add(s.k(t), map, u);
      if (begin + t + 1 == row.commit) tile.store(Map<kDim>(opaque(threadIdx.x)), state());
      if (map.warp == t % kWarps) {
        float o[kLane];
        token_output<kDim>(s, opaque(threadIdx.x) % 32, t, t % 2, o);
        output(t, o);
      }
    }
    if (drafts == 0) continue;
    if (singly == 0) __syncthreads();
    meet_state(s, map, tile);
    __syncthreads();
    solve_drafts(s, map, singly);
    if (!last) restore_keys(s, map, singly, drafts);
    __syncthreads();
    for (int t = map.warp; t < drafts; t += kWarps) {
      float o[kLane];
      load_lane(o, &s.sums[0][1][t][kLane * map.lane]);
      const float scale = s.inverse_length(0, singly + t) * inverse_sqrt(static_cast<float>(kDim));
#pragma unroll
      for (int i = 0; i < kLane; ++i) o[i] *= scale;
      output(singly + t, o);
    }
    if (!last) absorb_drafts(s, map, singly, drafts, tile);
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
