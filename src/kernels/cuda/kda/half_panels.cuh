// fp16 tiles on the tensor cores: panels in shared memory, their fragments, warp and warpgroup products.
//
// A panel is [64][64] fp16 with the 128-byte swizzle of wgmma.cuh: the 16-byte piece p of row r lies at piece
// p ^ (r % 8). The same bytes serve wgmma, ldmatrix and stmatrix without bank conflicts, and travel to memory and back
// as they are. An operand of more than 64 columns is several panels, one behind the other.
//
// Fragments of m16n8k16, four 8 x 8 matrices a load; `rows` and `columns` of the panel as stored:
//   left  [m][k]: load_matrices(near(m0, k0))        stored [k][m]: load_transposed(far(k0, m0))
//   right [n][k]: load_matrices(far(n0, k0))         stored [k][n]: load_transposed(near(k0, n0))   (two tiles of n)
//   sums  [m][n], two tiles of n, to rows m: store_matrices(near(m0, n0))
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/common/fragments.cuh"
#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/wgmma.cuh"

namespace k3::cuda::kda::hopper {

inline constexpr int kPanelBytes = 64 * 128;

__host__ __device__ constexpr int swizzled(int row, int byte) { return row * 128 + (byte ^ ((row & 7) << 4)); }
// Byte offset of element (row, column) in an operand of 64 rows.
__host__ __device__ constexpr int panel_place(int row, int column) {
  return column / 64 * kPanelBytes + swizzled(row, column % 64 * 2);
}
__device__ __forceinline__ uint32_t near(uint32_t operand, int row0, int column0) {
  const int lane = threadIdx.x % 32;
  return operand + panel_place(row0 + lane % 16, column0 + lane / 16 * 8);
}
__device__ __forceinline__ uint32_t far(uint32_t operand, int row0, int column0) {
  const int lane = threadIdx.x % 32;
  return operand + panel_place(row0 + lane % 8 + lane / 16 * 8, column0 + lane / 8 % 2 * 8);
}

}  // namespace k3::cuda::kda::hopper

#ifndef K3_CUDA_EMULATOR
namespace k3::cuda::kda::hopper {

__device__ __forceinline__ uint32_t multiply_halves(uint32_t x, uint32_t y) {
  const __half2 product = __hmul2(*reinterpret_cast<__half2*>(&x), *reinterpret_cast<__half2*>(&y));
  return *reinterpret_cast<const uint32_t*>(&product);
}
__device__ __forceinline__ void store_shared_uint2(uint32_t address, uint2 x) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x.x), "r"(x.y) : "memory");
}
__device__ __forceinline__ void atomic_maximum(uint32_t* p, uint32_t x) { atomicMax(p, x); }
__device__ __forceinline__ void atomic_sum(float* p, float x) { atomicAdd(p, x); }

}  // namespace k3::cuda::kda::hopper
#else
namespace k3::cuda::kda::hopper {

inline uint32_t multiply_halves(uint32_t x, uint32_t y) {
  const float2 a = both_halves(x), b = both_halves(y);
  return half_pair(a.x * b.x, a.y * b.y);
}
inline void store_shared_uint2(uint32_t address, uint2 x) { *reinterpret_cast<uint2*>(shared_at(address)) = x; }
inline void atomic_maximum(uint32_t* p, uint32_t x) { *p = *p > x ? *p : x; }
inline void atomic_sum(float* p, float x) { *p += x; }

template <int kAdd, int kSign, int kAcross, int kCount>
void wgmma_half(float (&d)[kCount], const uint32_t* a, uint64_t descriptor) {
  wgmma_16<kAdd, kSign, kAcross>(d, a, descriptor, half_of);
}

template <int kAdd, int kSign, int kAcross = 0, int kCount>
void wgmma_half_rows(float (&d)[kCount], uint64_t a, uint64_t b) {
  uint32_t left[4];
  const int thread = emulator::block->current % 128;
  for (int e = 0; e < 4; ++e) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (e % 2), k = 2 * (thread % 4) + 8 * (e / 2);
    uint32_t address = ((a & 0x3fff) << 4) + row / 8 * 1024 + row % 8 * 128 + k * 2;
    address ^= (address >> 7 & 7) << 4;
    std::memcpy(&left[e], shared_at(address), 4);
  }
  wgmma_half<kAdd, kSign, kAcross>(d, left, b);
}

}  // namespace k3::cuda::kda::hopper
#endif

namespace k3::cuda::kda::hopper {

// Rounds a finite number to tf32 (halves away from zero) in one instruction, cvt.rna.tf32 takes three. The tensor core
// ignores the low 13 bits; whoever reads the number otherwise clears them.
__device__ __forceinline__ uint32_t round_tf32(float x) { return bits_of(x) + 0x1000u; }

// Sums of wgmma [64][64] as fp16 pairs, transposed, to a panel: this warp's 16 rows become columns column0 ...
__device__ __forceinline__ void put_transposed(uint32_t panel, int column0, const uint32_t* pairs) {
#pragma unroll
  for (int tile = 0; tile < 4; ++tile)
    store_transposed(far(panel, 16 * tile, column0), pairs[4 * tile], pairs[4 * tile + 1], pairs[4 * tile + 2],
                     pairs[4 * tile + 3]);
}
// One arrival for the whole warp, after everything its lanes did before.
__device__ __forceinline__ void warp_arrive(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

}  // namespace k3::cuda::kda::hopper
