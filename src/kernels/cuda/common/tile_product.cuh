// Products of small tiles by one warp on the tensor cores, operands read element by element through functions, so that
// transposes, scalings and signs cost no copy:
//   multiply<kDepth, kExact>(sum, a, b):  sum[i][j] += sum_k a(i, k) b(k, j)
// Operands are rounded to tf32 (2^-11); kExact splits each into two tf32 terms and keeps three products, which
// restores about 2^-21.
// Shared tiles read along the contraction index want a row pitch of 4 mod 8 floats, those read across it 8 mod 32 (no
// bank conflicts).
#pragma once

#include "kernels/cuda/common/device.cuh"

namespace k3::cuda {

// kRowTiles x kColumnTiles tensor core tiles (16 x 8 each) held by one warp.
template <int kRowTiles, int kColumnTiles>
struct WarpTile {
  float value[kRowTiles][kColumnTiles][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) value[m][n][e] = 0.f;
  }
  // visit(row, column, x, y): the two neighbours (row, column) and (row, column + 1), by reference
  template <class Visit>
  __device__ __forceinline__ void each_pair(Visit visit) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          visit(16 * m + 8 * half + lane / 4, 8 * n + 2 * (lane % 4), value[m][n][2 * half], value[m][n][2 * half + 1]);
  }
};

template <int kDepth, bool kExact, int kRowTiles, int kColumnTiles, class A, class B>
__device__ __forceinline__ void multiply(WarpTile<kRowTiles, kColumnTiles>& sum, A a, B b) {
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int k = 0; k < kDepth; k += 8) {
    uint32_t left[kRowTiles][4], right[kColumnTiles][2], left_rest[kRowTiles][4], right_rest[kColumnTiles][2];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float x = a(16 * m + group + 8 * (e % 2), k + quad + 4 * (e / 2));
        left[m][e] = to_tf32(x);
        if constexpr (kExact) left_rest[m][e] = to_tf32(x - from_bits(left[m][e]));
      }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float x = b(k + quad + 4 * e, 8 * n + group);
        right[n][e] = to_tf32(x);
        if constexpr (kExact) right_rest[n][e] = to_tf32(x - from_bits(right[n][e]));
      }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        if constexpr (kExact) {
          tensor_core_tf32(sum.value[m][n], left_rest[m], right[n]);
          tensor_core_tf32(sum.value[m][n], left[m], right_rest[n]);
        }
        tensor_core_tf32(sum.value[m][n], left[m], right[n]);
      }
  }
}

// The same with bf16 operands read as pairs along the contraction index: a(i, k) and b(j, k) return elements k and k +
// 1.
template <int kDepth, int kRowTiles, int kColumnTiles, class A, class B>
__device__ __forceinline__ void multiply_bf16(WarpTile<kRowTiles, kColumnTiles>& sum, A a, B b) {
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t right[kColumnTiles][2];
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) right[n][e] = b(8 * n + group, k + 2 * quad + 8 * e);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      uint32_t left[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) left[e] = a(16 * m + group + 8 * (e % 2), k + 2 * quad + 8 * (e / 2));
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) tensor_core_bf16(sum.value[m][n], left, right[n]);
    }
  }
}

}  // namespace k3::cuda
