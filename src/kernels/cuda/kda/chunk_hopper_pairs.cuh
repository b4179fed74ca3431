// Tiles of 16 x 16 pairs of rows and their products with 32 keys on the tensor cores in tf32, for the gradients
// (chunk_hopper_gradients.cu). Pairs are fp32 in shared memory, one tile behind the other: (I, J), I >= J, at
// I (I + 1) / 2 + J. Operands are [64 tokens][64 keys] in tf32.
#pragma once

#include "kernels/cuda/kda/chunk_hopper.cuh"

namespace k3::cuda::kda::hopper {

inline constexpr int kKeys = 64;  // of one block
inline constexpr int kPairPitch = kTile + 4, kPairTile = kTile * kPairPitch, kPairTiles = kTiles * (kTiles + 1) / 2;
inline constexpr int kWidePitch = kKeys + 4;  // of operands

__device__ __forceinline__ int pair_tile(int i, int j) { return (i * (i + 1) / 2 + j) * kPairTile; }

// sum[n] += left right of one 16 x 16 tile: left(m, k) entries k and k + 1; right(k, n, j) element (k, 8 n + j), tf32
// bits. Two sums with their lefts may share the right one. The order of k in a product is free: slots quad and quad + 4
// hold neighbours.
struct Fragments {  // of a left tile
  uint32_t a[2][4];
  template <class Left>
  __device__ __forceinline__ explicit Fragments(Left left) {
    const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 pair = left(group + 8 * (e % 2), 8 * (e / 2) + 2 * quad);
      a[e / 2][e % 2] = round_tf32(pair.x), a[e / 2][e % 2 + 2] = round_tf32(pair.y);
    }
  }
};
// add(n, k, b): product k of the columns n, with their fragment b.
template <class Right, class Add>
__device__ __forceinline__ void each_right(Right right, Add add) {
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint32_t b[2] = {right(8 * k + 2 * quad, n, group), right(8 * k + 2 * quad + 1, n, group)};
      add(n, k, b);
    }
}
template <class Right>
__device__ __forceinline__ void add_tile(float (&sum)[4][4], const Fragments& left, float (&other_sum)[4][4],
                                         const Fragments& other_left, Right right) {
  each_right(right, [&](int n, int k, const uint32_t(&b)[2]) {
    tensor_core_tf32(sum[n], left.a[k], b);
    tensor_core_tf32(other_sum[n], other_left.a[k], b);
  });
}
template <class Right>
__device__ __forceinline__ void add_tile(float (&sum)[4][4], const Fragments& left, Right right) {
  each_right(right, [&](int n, int k, const uint32_t(&b)[2]) { tensor_core_tf32(sum[n], left.a[k], b); });
}
__device__ __forceinline__ void scale_columns(float (&sum)[4][4], const float* factor) {  // factor: of this lane's keys
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 f = *reinterpret_cast<const float2*>(factor + 8 * n);
    sum[n][0] *= f.x, sum[n][1] *= f.y, sum[n][2] *= f.x, sum[n][3] *= f.y;
  }
}

// Left operands of add_tile: tile (i, j) as it is, or transposed.
__device__ __forceinline__ auto tile_at_rows(const float* pairs, int i, int j) {
  const float* first = pairs + pair_tile(i, j);
  return [=](int m, int k) { return *reinterpret_cast<const float2*>(first + m * kPairPitch + k); };
}
__device__ __forceinline__ auto tile_at_columns(const float* pairs, int i, int j) {
  const float* first = pairs + pair_tile(i, j);
  return [=](int m, int k) { return make_float2(first[k * kPairPitch + m], first[(k + 1) * kPairPitch + m]); };
}
// Right operand: the rows of a tile, 32 keys from column0 on.
__device__ __forceinline__ auto rows_of_tile(const float* operand, int tile, int column0) {
  const float* first = operand + tile * kTile * kWidePitch + column0;
  return [=](int k, int n, int j) { return bits_of(first[k * kWidePitch + 8 * n + j]); };
}

}  // namespace k3::cuda::kda::hopper
