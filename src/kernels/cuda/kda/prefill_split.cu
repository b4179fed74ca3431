// prefill_split.h: the place of the pairs in the workspace, and the merge of the pairs into entry states.
// The merge walks the segments of a row and head one after the other; a block owns 16 value columns, a warp 16 keys of
// them. Products of three tf32 terms (error about 2^-21), M comes a segment ahead by bulk copies.
#include "kernels/cuda/kda/prefill_split.h"

#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/cuda/kda/prefill_scan.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {

constexpr int kColumns = 16, kThreads = 256, kBuffers = 3;
constexpr std::int64_t kState = kDim * kDim, kStateBytes = kState * 4;
constexpr int kColumnPitch = kColumns + 8;  // floats
constexpr int kTransferBytes = kDim * kTransferPitch * 4, kCurrent = kBuffers * kTransferBytes,
              kBarriers = kCurrent + kDim * kColumnPitch * 4, kVanished = kBarriers + 8 * kBuffers,
              kSharedBytes = kVanished + 2 * kMostSegments * 4 + 1024;

using Tile = WarpTile<1, 2>;  // 16 keys, 16 columns

// sum += M S over 64 keys in; M [key in][key out], S [key in][column]. Each factor is the sum of two tf32 numbers, cut,
// not rounded: the instruction ignores the lower bits.
[[maybe_unused]] __device__ __forceinline__ void multiply_split(Tile& sum, const float* transfer, const float* state) {
  const int group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  const auto split = [](float x, uint32_t& high, uint32_t& low) {
    high = bits_of(x) & 0xffffe000u;
    low = bits_of(x - from_bits(high));
  };
  Tile rest[2];
  rest[0].clear(), rest[1].clear();
#pragma unroll
  for (int k = 0; k < kDim / 2; k += 8) {
    uint32_t left[4], left_rest[4], right[2][2], right_rest[2][2];
#pragma unroll
    for (int e = 0; e < 4; ++e)
      split(transfer[(k + quad + e / 2 * 4) * kTransferPitch + group + e % 2 * 8], left[e], left_rest[e]);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        split(state[(k + quad + 4 * e) * kColumnPitch + 8 * n + group], right[n][e], right_rest[n][e]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      tensor_core_tf32(sum.value[0][n], left, right[n]);
      tensor_core_tf32(rest[0].value[0][n], left_rest, right[n]);
      tensor_core_tf32(rest[1].value[0][n], left, right_rest[n]);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.value[0][n][e] += rest[0].value[0][n][e] + rest[1].value[0][n][e];
}

__global__ void __launch_bounds__(kThreads)
    merge_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab,
                 const __grid_constant__ Split split) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  await_previous_kernel();
  release_next_kernel();
  const int first_column = blockIdx.x * kColumns, head = blockIdx.y, row = blockIdx.z;
  const int segments = (share_of(a, slab, row).chunks + split.segment_chunks - 1) / split.segment_chunks;
  if (segments < 3) return;
  const uint32_t base = panel_base();
  unsigned char* bytes = shared_memory<unsigned char>() + (base - shared_address(shared_memory<unsigned char>()));
  float* current = reinterpret_cast<float*>(bytes + kCurrent);  // S_in, [key][column]
  int* vanished = reinterpret_cast<int*>(bytes + kVanished);
  const auto barrier = [&](int segment) { return base + kBarriers + (segment - 1) % kBuffers * 8; };
  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < kBuffers; ++buffer) barrier_init(base + kBarriers + buffer * 8, 1);
    barrier_init_fence();
  }
  const auto pair = [&](int segment) {
    return (static_cast<std::int64_t>(row) * split.segments + segment) * a.heads + head;
  };
  for (int i = threadIdx.x; i < 2 * segments; i += kThreads) vanished[i] = split.vanished[2 * pair(i / 2) + i % 2];
  const int first_key = 16 * (threadIdx.x / 32);
  const auto own = [&](int segment, int key, int column) {
    return reinterpret_cast<float2*>(split.entries + pair(segment) * kState + (first_key + key) * kDim + first_column +
                                     column);
  };
  const auto load = [&](Tile& tile, int segment) {
    tile.each_pair([&](int key, int column, float& x, float& y) {
      const float2 two = *own(segment, key, column);
      x = two.x, y = two.y;
    });
  };
  const auto fetch = [&](int segment) {  // M, by halves
    if (threadIdx.x != 0 || segment > segments - 2) return;
    constexpr uint32_t kHalfBytes = kTransferBytes / 2;
    const int* gone = vanished + 2 * segment;
    barrier_arrive_expect(barrier(segment), (2 - gone[0] - gone[1]) * kHalfBytes);
    for (int half = 0; half < 2; ++half)
      if (!gone[half])
        bulk_copy_in(base + (segment - 1) % kBuffers * kTransferBytes + half * kHalfBytes,
                     split.transfers + (2 * pair(segment) + half) * (kDim / 2) * kTransferPitch, kHalfBytes,
                     barrier(segment));
  };
  Tile x, ahead;
  load(x, 1), load(ahead, 2);
  __syncthreads();
  fetch(1), fetch(2);
  for (int segment = 1; segment <= segments - 2; ++segment) {
    __syncthreads();  // the M before this one and `current` are free
    x.each_pair([&](int key, int column, float first, float second) {
      *reinterpret_cast<float2*>(current + (first_key + key) * kColumnPitch + column) = make_float2(first, second);
    });
    fetch(segment + 2);
    __syncthreads();
    x = ahead;  // S~
    if (segment < segments - 2) load(ahead, segment + 2);
    barrier_wait(barrier(segment), (segment - 1) / kBuffers & 1);
    const float* transfer =
        reinterpret_cast<const float*>(bytes + (segment - 1) % kBuffers * kTransferBytes) + first_key;
    for (int half = 0; half < 2; ++half)
      if (!vanished[2 * segment + half])
        multiply_split(x, transfer + half * kDim / 2 * kTransferPitch, current + half * kDim / 2 * kColumnPitch);
    x.each_pair([&](int key, int column, float first, float second) {
      *own(segment + 1, key, column) = make_float2(first, second);
    });
  }
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

}  // namespace

std::size_t split_bytes(int segments, int rows, int heads) {
  if (segments < 2) return 0;
  const std::size_t pairs = static_cast<std::size_t>(segments) * rows * heads;
  return pairs * (kStateBytes + kTransferBytes) + (2 * pairs * sizeof(int) + 255) / 256 * 256;
}
Split place_split(std::int64_t chunks, int segments, int rows, int heads, void* memory) {
  Split split{static_cast<int>((chunks + segments - 1) / segments), segments};
  const std::int64_t pairs = static_cast<std::int64_t>(segments) * rows * heads;
  split.entries = static_cast<float*>(memory);
  split.transfers = split.entries + pairs * kState;
  split.vanished = reinterpret_cast<int*>(split.transfers + pairs * kDim * kTransferPitch);
  return split;
}

cudaError_t launch_split(const StepArguments& a, const Slab& slab, const Split& split, cudaStream_t stream) {
  if (split.segments < 2) return cudaSuccess;
  const cudaError_t error = launch_pairs(a, slab, split, stream);
  if (error != cudaSuccess || split.segments < 3) return error;
  return launch_chained(merge_kernel, dim3(kDim / kColumns, a.heads, a.rows), kThreads, kSharedBytes, stream, a, slab,
                        split);
}

}  // namespace k3::cuda::kda::prefill_detail
