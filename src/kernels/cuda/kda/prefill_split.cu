// prefill_split.h: the place of the pairs in the workspace, and the merge of the pairs into entry states (sm_90a).
// The merge walks the segments of a row and head one after the other, a warpgroup for 64 value columns, the state in
// the sums as in prefill_scan.cuh: S^T = S~^T + S^T M^T, B = M across rows. M and S^T are each the sum of two bf16
// numbers, of which the product of the two rests is left out: an error of 2^-17 of the terms. M comes two segments
// ahead by bulk copies, S~ one.
// A step: 1536 clocks of the tensor core; 64 KB of M, 32 KB of S~ and 32 KB of entry states.
#include "kernels/cuda/kda/prefill_split.h"

#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/prefill_scan.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {

constexpr int kThreads = 128, kBuffers = 3;
constexpr std::int64_t kState = kDim * kDim, kStateBytes = kState * 4;
constexpr int kMatrixBytes = 8 * kPanel, kHalfBytes = kStateBytes / 2;  // of M; of half the values of S~
[[maybe_unused]] constexpr int kRest = kMatrixBytes / 2;                 // of M behind its rounded half
constexpr int kValues = kBuffers * kMatrixBytes, kBarriers = kValues + kHalfBytes,
              kVanished = kBarriers + 8 * (kBuffers + 1), kSharedBytes = kVanished + kMostSegments * 4 + 1024;
static_assert(kTransferBytes == kMatrixBytes + kStateBytes && kSharedBytes <= 227 * 1024);

// S^T += left M^T; M [key in][key out] in four panels.
[[maybe_unused]] __device__ __forceinline__ void transfer_state(float (&state)[64], const uint32_t (&left)[32],
                                                                uint32_t operand) {
#pragma unroll
  for (int k = 0; k < 8; ++k)
    wgmma<1, 1, 1>(state, left + 4 * k, panel_descriptor(operand + k / 4 * 2 * kPanel + k % 4 * 2048, kPanel));
}

__global__ void __launch_bounds__(kThreads)
    merge_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab,
                 const __grid_constant__ Split split) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  await_previous_kernel();
  release_next_kernel();
  const int half = blockIdx.x, head = blockIdx.y, row = blockIdx.z;
  const int segments = (share_of(a, slab, row).chunks + split.segment_chunks - 1) / split.segment_chunks;
  const uint32_t base = panel_base();
  int* vanished = reinterpret_cast<int*>(panel_bytes() + kVanished);
  const auto pair = [&](int segment) { return split.place(row, segment, a.heads, head); };
  // The pairs 1 ... segments - 2 count: the state behind the first segment is there.
  for (int i = threadIdx.x; i < segments - 1; i += kThreads) vanished[i] = split.vanished[pair(i)];
  const auto barrier = [&](int segment) { return base + kBarriers + segment % kBuffers * 8; };
  const uint32_t values_barrier = base + kBarriers + kBuffers * 8;
  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer <= kBuffers; ++buffer) barrier_init(base + kBarriers + buffer * 8, 1);
    barrier_init_fence();
  }
  __syncthreads();
  const int last = segments - 1;
  int first = 1;
  while (first < last && vanished[first]) ++first;
  if (first >= last) return;
  const auto buffer = [&](int segment) { return base + segment % kBuffers * kMatrixBytes; };
  const auto fetch = [&](int segment) {
    if (threadIdx.x != 0 || segment >= last) return;
    barrier_arrive_expect(barrier(segment), vanished[segment] ? 0 : kMatrixBytes);
    if (!vanished[segment])
      bulk_copy_in(buffer(segment), split.transfers + pair(segment) * kTransferBytes, kMatrixBytes, barrier(segment));
  };
  const auto fetch_values = [&](int segment) {
    if (threadIdx.x != 0 || segment >= last || vanished[segment]) return;
    barrier_arrive_expect(values_barrier, kHalfBytes);
    bulk_copy_in(base + kValues, split.transfers + pair(segment) * kTransferBytes + kMatrixBytes + half * kHalfBytes,
                 kHalfBytes, values_barrier);
  };
  float S[64];
  const auto load = [&](int segment) {
    const float* entry = split.entries + pair(segment) * kState;
    each_state_element(64 * half, [&](int i, int key, int value) { S[i] = entry[key * kDim + value]; });
  };
  fetch(first), fetch_values(first), fetch(first + 1);
  load(first);
  int waits = 0;  // for S~
  for (int segment = first; segment < last; ++segment) {
    const bool gone = vanished[segment];
    uint32_t left[32], rest[32];
    if (gone) {
      load(segment + 1);
    } else {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const SplitPair pair(S[2 * i], S[2 * i + 1]);
        left[i] = pair.high, rest[i] = pair.low;
      }
      barrier_wait(values_barrier, waits++ & 1);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const uint4 four = load_shared_uint4(base + kValues + (i * kThreads + threadIdx.x) * 16);
        S[4 * i] = from_bits(four.x), S[4 * i + 1] = from_bits(four.y), S[4 * i + 2] = from_bits(four.z),
              S[4 * i + 3] = from_bits(four.w);
      }
    }
    __syncthreads();  // S~ and the M of the segment before have been used
    fetch_values(segment + 1), fetch(segment + 2);
    if (gone) continue;
    barrier_wait(barrier(segment), (segment - first) / kBuffers & 1);
    wgmma_fence();
    transfer_state(S, rest, buffer(segment));
    transfer_state(S, left, buffer(segment) + kRest);
    transfer_state(S, left, buffer(segment));
    wgmma_commit();
    wgmma_wait<0>();
    settle(S);
    float* entry = split.entries + pair(segment + 1) * kState;
    each_state_element(64 * half, [&](int i, int key, int value) { entry[key * kDim + value] = S[i]; });
  }
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

}  // namespace

std::size_t split_bytes(int segments, int rows, int heads) {
  if (segments < 2) return 0;
  const std::size_t pairs = static_cast<std::size_t>(segments) * rows * heads;
  return pairs * (kStateBytes + kTransferBytes) + (pairs * sizeof(int) + 255) / 256 * 256;
}
Split place_split(std::int64_t chunks, int segments, int rows, int heads, void* memory) {
  Split split{static_cast<int>((chunks + segments - 1) / segments), segments};
  const std::int64_t pairs = static_cast<std::int64_t>(segments) * rows * heads;
  split.entries = static_cast<float*>(memory);
  split.transfers = reinterpret_cast<unsigned char*>(split.entries + pairs * kState);
  split.vanished = reinterpret_cast<int*>(split.transfers + pairs * kTransferBytes);
  return split;
}

cudaError_t launch_split(const StepArguments& a, const Slab& slab, const Split& split, cudaStream_t stream) {
  if (split.segments < 2) return cudaSuccess;
  const cudaError_t error = launch_pairs(a, slab, split, stream);
  if (error != cudaSuccess || split.segments < 3) return error;
  return launch_chained(merge_kernel, dim3(2, a.heads, a.rows), kThreads, kSharedBytes, stream, a, slab, split);
}

}  // namespace k3::cuda::kda::prefill_detail
