// Operands of tensor core products of a warp, straight from shared memory (addresses in shared space).
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/common/device.cuh"

namespace k3::cuda {

// Two fp16 values in one word, the first in the low half.
__device__ __forceinline__ uint32_t half_pair(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ float2 both_halves(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

}  // namespace k3::cuda

#ifndef K3_CUDA_EMULATOR
namespace k3::cuda {

// Four 8 x 8 matrices of 2-byte values: lane l gives the 16-byte row l % 8 of matrix l / 8 and receives of each matrix
// row l / 4, columns 2 (l % 4) + {0, 1}.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// Stores such matrices: lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

// As tensor_core_bf16, of fp16 pairs.
__device__ __forceinline__ void tensor_core_half(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace k3::cuda
#else
namespace k3::cuda {

inline float half_of(uint32_t pair, int which) {
  const float2 x = both_halves(pair);
  return which ? x.y : x.x;
}
inline void tensor_core_half(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  tensor_core_16(d, a, b0, b1, half_of);
}
inline void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const auto table = emulator::exchange({address});
  const int lane = emulator::block->current % 32;
  const uint32_t words[4] = {a, b, c, d};
  for (int matrix = 0; matrix < 4; ++matrix)
    std::memcpy(shared_at(table[8 * matrix + lane / 4][0] + lane % 4 * 4), &words[matrix], 4);
}

}  // namespace k3::cuda
#endif
