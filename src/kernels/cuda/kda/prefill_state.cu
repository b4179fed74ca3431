// The state kernel of prefill.h (sm_90a): one block per row, head and segment (prefill_split.h), four warpgroups:
//   0, 1  the state, 64 value columns each (prefill_scan.cuh). The loop of a chunk, with its R there already:
//           Qd product | in its shadow R^T is packed and S decayed | S product, A product | in their shadow the
//           next U^T is loaded and the new S packed | R of the next chunk | in its shadow O leaves for shared memory
//         The tensor core always has a product in front of it, and nothing is in flight across the loop's edge, where
//         ptxas would serialise every product.
//   2, 3  outputs and the feed of operands (prefill_outputs.cuh)
// Products of a chunk and warpgroup: 896 clocks of the tensor core, 0.9 us for both.
// Bytes a token and head: 1160 + 512, 1.31 GB at T 8192 H 96: floor 0.31 ms at 4.2 TB/s.
#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/prefill_outputs.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {

[[maybe_unused]] constexpr int kStateRegisters = 208, kOutputRegisters = 48;  // with 200 ptxas serialises the products

// entry: the state before; exit: where the state behind goes, or null. Both [key][value].
[[maybe_unused]] __device__ __forceinline__ void run_state(const StateMemory& at, const float* entry, float* exit,
                                                           int chunks) {
  constexpr int kStages = StateMemory::kStages;
  const auto ring = at.ring();
  const int group = threadIdx.x / 128;
  const bool leader = threadIdx.x % 32 == 0;
  float S[64], o[32], r[32];
  uint32_t left[32], r_bits[16];
  each_state_element(64 * group, [&](int i, int key, int value) { S[i] = entry[key * kDim + value]; });
  const auto signal = [&](uint32_t barrier) {
    __syncwarp();
    if (leader) barrier_arrive(barrier);
  };
  const auto put_output = [&](int stage) {  // O^T to shared memory, token-major
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
      const float* x = o + 8 * tile;
      store_transposed(transposed_address(at.output(stage) + group * kPanel, tile), bf16_pair(x[0], x[1]),
                       bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7]));
    }
    signal(at.output_full(stage));
  };
  pack(left, S);
  barrier_wait(ring.full(0), 0);
  load_values(r, ring.block(0) + kWeightedValues + group * kPanel);
  wgmma_fence();
  project<1, -1>(r, left, ring.block(0) + kWeightedKeys);
  wgmma_commit();
  wgmma_wait<0>();
  settle(r);
  signal(at.weights_used(0));
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int stage = chunk % kStages, next = (chunk + 1) % kStages;
    const uint32_t block = ring.block(stage);
    wgmma_fence();
    project<0, 1>(o, left, block + kDecayedQueries);
    wgmma_commit();
    wgmma_wait<1>();  // costs nothing; without it ptxas waits for the product before r and S are touched
    pack(r_bits, r);
    decay_state(S, block + kDecay);
    wgmma_fence();
    restore(S, r_bits, block + kRestoredKeys);
    wgmma_commit();
    attend(o, r_bits, block + kScores);
    wgmma_commit();
    if (chunk + 1 < chunks) barrier_wait(ring.full(next), (chunk + 1) / kStages & 1);
    load_values(r, ring.block(next) + kWeightedValues + group * kPanel);
    wgmma_wait<1>();
    settle(S);
    pack(left, S);
    wgmma_fence();
    project<1, -1>(r, left, ring.block(next) + kWeightedKeys);  // behind the last chunk: of stale operands, never used
    wgmma_commit();
    wgmma_wait<1>();
    settle(o);
    put_output(stage);
    wgmma_wait<0>();
    settle(r);
    if (chunk + 1 < chunks) signal(at.weights_used(next));
  }
  if (exit)
    each_state_element(64 * group, [&](int i, int key, int value) { exit[key * kDim + value] = S[i]; });
}

// The three last raw values of every channel, once the whole row has been read by the factor kernel.
[[maybe_unused]] __device__ __forceinline__ void write_window(const StepArguments& a, int thread, int threads, int row,
                                                              int head) {
  const std::int64_t width = static_cast<std::int64_t>(a.heads) * kDim, first = a.starts[row],
                     tokens = a.starts[row + 1] - first;
  auto* window = static_cast<__nv_bfloat16*>(a.window) + static_cast<std::int64_t>(a.slots[row]) * 9 * width +
                 static_cast<std::int64_t>(head) * kDim;
  for (int i = thread; i < 3 * kDim; i += threads) {
    const int which = i / kDim, channel = i % kDim;
    const Rows& raw = which == 0 ? a.q : which == 1 ? a.k : a.v;
    __nv_bfloat16 values[3];
    for (int tap = 0; tap < 3; ++tap) {
      const std::int64_t token = tokens - 3 + tap;
      values[tap] = token >= 0
                        ? static_cast<const __nv_bfloat16*>(
                              raw.data)[(first + token) * raw.token_stride + head * raw.head_stride + channel]
                        : window[((tokens + tap) * 3 + which) * width + channel];
    }
    for (int tap = 0; tap < 3; ++tap) window[(tap * 3 + which) * width + channel] = values[tap];
  }
}

__global__ void __launch_bounds__(kStateThreads + kOutputThreads, 1)
    state_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab,
                 const __grid_constant__ Split split) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  await_previous_kernel();
  release_next_kernel();
  const int head = blockIdx.x, row = blockIdx.y, segment = blockIdx.z, first = segment * split.segment_chunks;
  const Share share = share_of(a, slab, row);
  if (first >= share.chunks) return;
  const int chunks = min(split.segment_chunks, share.chunks - first);
  const bool last = first + chunks == share.chunks;
  const StateMemory at{panel_base()};
  if (threadIdx.x == 0) at.init();
  __syncthreads();
  if (threadIdx.x >= kStateThreads) {
    registers_down<kOutputRegisters>();
    const std::int64_t skipped = static_cast<std::int64_t>(first) * kChunk;
    finish_outputs(a, at, {block_of(slab, row, first, a.heads, head), head, chunks, share.first_token + skipped,
                           share.tokens - skipped});
  } else {
    registers_up<kStateRegisters>();
    float* state = a.state + (static_cast<std::int64_t>(a.slots[row]) * a.heads + head) * kDim * kDim;
    const std::int64_t entry = (static_cast<std::int64_t>(row) * split.segments + segment) * a.heads + head;
    run_state(at, share.chunks > split.segment_chunks ? split.entries + entry * kDim * kDim : state,
              last ? state : nullptr, chunks);
    if (last && share.ends) write_window(a, threadIdx.x, kStateThreads, row, head);
  }
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

}  // namespace

cudaError_t launch_state(const StepArguments& a, const Slab& slab, const Split& split, cudaStream_t stream) {
  return launch_chained(state_kernel, dim3(a.heads, a.rows, split.segments), kStateThreads + kOutputThreads,
                        StateMemory::kBytes, stream, a, slab, split);
}

}  // namespace k3::cuda::kda::prefill_detail
