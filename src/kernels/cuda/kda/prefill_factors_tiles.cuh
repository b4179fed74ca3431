// The tensor core half of the factor kernel (prefill_factors.cu): tiles of A and M, the inverses on the diagonal, W and
// U by block substitution. Products are m16n8k16 of bf16 with fp32 sums.
#pragma once

#include "kernels/cuda/common/fragments.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/kda/prefill_factors_work.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

// The six tiles below the diagonal are numbered column by column.
__device__ __forceinline__ constexpr int tile_below(int row, int column) {
  return column == 0 ? row - 1 : column == 1 ? row + 1 : 5;
}
struct TilePlace {
  int row, column;
};
__device__ __forceinline__ TilePlace tile_below_place(int tile) {
  return tile < 3 ? TilePlace{tile + 1, 0} : tile < 5 ? TilePlace{tile - 1, 1} : TilePlace{3, 2};
}
// Byte `byte` of row `row` of a [16][16] bf16 tile: eight rows of one half lie in eight different 16-byte columns.
__device__ __forceinline__ int small_offset(int row, int byte) { return row * 32 + (byte ^ ((row >> 2 & 1) << 4)); }

// One tile of both products, which share the columns; `tile` counts along the diagonal or below it:
//   A_ij = q_i . (k_j e^(G_i - G_j)), to the panel that leaves for memory
//   M_ij = k_i . (k_j e^(G_i - G_j)): below the diagonal -M as bf16 (and what that rounding lost), on the diagonal the
//   columns of L = diag(beta) M in fp32
template <bool kOnDiagonal>
__device__ __forceinline__ void multiply_tile(unsigned char* shared, uint32_t address, int tile) {
  const int lane = own_thread() % 32, swizzle = (lane & 7) << 4;
  const TilePlace at = kOnDiagonal ? TilePlace{tile, tile} : tile_below_place(tile);
  const uint32_t rows = address + at.row * kTilePanel + (lane & 15) * 128,
                 columns = address + (kOnDiagonal ? kSameKeys + tile * kTilePanel : kEndKeys + tile * kTileBytes) +
                           ((lane & 7) + (lane >> 4) * 8) * 128;
  const int row_byte = (lane >> 4) * 16, column_byte = (lane >> 3 & 1) * 16, panel = kOnDiagonal ? kPanel : kTilePanel;
  float scores[2][4] = {}, keys[2][4] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint32_t left[4], right[4];
    load_matrices(right, columns + k / 4 * panel + ((k % 4 * 32 + column_byte) ^ swizzle));
    const uint32_t piece = rows + k / 4 * kPanel + ((k % 4 * 32 + row_byte) ^ swizzle);
    load_matrices(left, piece + kRowsK);
    tensor_core_bf16(keys[0], left, {right[0], right[1]});
    tensor_core_bf16(keys[1], left, {right[2], right[3]});
    load_matrices(left, piece + kRowsQ);
    tensor_core_bf16(scores[0], left, {right[0], right[1]});
    tensor_core_bf16(scores[1], left, {right[2], right[3]});
  }
  float* diagonal = reinterpret_cast<float*>(shared + kDiagonal + at.row * kDiagonalBytes);
  const float* beta = reinterpret_cast<const float*>(shared + kBeta) + at.row * kTile;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int i = 8 * half + lane / 4, j = 8 * n + 2 * (lane % 4);
      float q = scores[n][2 * half], q_next = scores[n][2 * half + 1];
      const float k = keys[n][2 * half], k_next = keys[n][2 * half + 1];
      if constexpr (!kOnDiagonal) {
        unsigned char* to = shared + kBelow + tile * kBelowBytes + small_offset(i, 2 * j);
        const uint32_t high = bf16_pair(-k, -k_next);
        *reinterpret_cast<uint32_t*>(to) = high;
        *reinterpret_cast<uint32_t*>(to + kBelowRest - kBelow) = bf16_pair(-k - both(high).x, -k_next - both(high).y);
      } else {  // selects: above the diagonal products may be infinite
        diagonal[j * kColumnPitch + i] = j < i ? beta[i] * k : 0.f;
        diagonal[(j + 1) * kColumnPitch + i] = j + 1 < i ? beta[i] * k_next : 0.f;
        q = j <= i ? q : 0.f, q_next = j + 1 <= i ? q_next : 0.f;
      }
      const int score = panel_offset(at.row * kTile + i, (at.column * kTile + j) * 2);
      *reinterpret_cast<uint32_t*>(shared + kScoresOut + score) = bf16_pair(q, q_next);
    }
}

// T diag(beta) with T = (I + L)^-1 of one diagonal tile, in fp32 by columns: lane l owns column l % 16.
__device__ __forceinline__ void invert_diagonal(unsigned char* shared, int tile) {
  const int lane = own_thread() % 32, column = lane % kTile;
  unsigned char* place = shared + kDiagonal + tile * kDiagonalBytes;
  const float* columns = reinterpret_cast<const float*>(place);
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) x[i] = i == column ? 1.f : 0.f;
#pragma unroll
  for (int j = 0; j < kTile - 1; ++j)
#pragma unroll
    for (int four = (j + 1) / 4 * 4; four < kTile; four += 4) {
      const float4 l = *reinterpret_cast<const float4*>(columns + j * kColumnPitch + four);
      if (four > j) x[four] -= l.x * x[j];
      if (four + 1 > j) x[four + 1] -= l.y * x[j];
      if (four + 2 > j) x[four + 2] -= l.z * x[j];
      if (four + 3 > j) x[four + 3] -= l.w * x[j];
    }
  const float beta = reinterpret_cast<const float*>(shared + kBeta)[tile * kTile + column];
  __syncwarp();  // T takes the place of L
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) {
    const float value = beta * (lane < kTile ? x[i] : x[i + kTile / 2]);
    const int row = lane < kTile ? i : i + kTile / 2;
    *reinterpret_cast<__nv_bfloat16*>(place + small_offset(row, 2 * column)) = __float2bfloat16(value);
  }
}

// W and U, transposed, of the warp's 16 channels, tile of tokens by tile of tokens:
//   X_I = T_I diag(beta_I) (B_I - sum_(J < I) M_IJ X_J),   B = k e^G and v
// The sums of X_J are the left operands of the products that follow. The results take the places of rows k and v.
__device__ __forceinline__ void substitute(unsigned char* shared, uint32_t address, int warp) {
  const int lane = own_thread() % 32;
  const uint32_t small = small_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3 & 1) * 16);
  const int token = lane / 16 * 8 + lane % 8, byte = (16 * warp + lane / 8 % 2 * 8) % 64 * 2;
  const uint32_t place = address + 16 * warp / 64 * kPanel + panel_offset(token, byte);
  const float* decay = reinterpret_cast<const float*>(shared + kTileDecay) + 16 * warp + lane / 4;
  float before[2] = {1.f, 1.f};  // decay of the earlier tiles, channels lane / 4 and 8 more
  uint32_t done[2][kTiles][4];
  // What a tile reads; read before the tile ahead of it is stored, so that nothing waits for these loads.
  uint32_t right[2][4], t[4], m[kTiles - 1][4], rest[kTiles - 1][4];
  const auto read = [&](int tile) {
    load_transposed(right[0], place + kRowsK + tile * kTilePanel);
    load_transposed(right[1], place + kValues + tile * kTilePanel);
#pragma unroll
    for (int other = 0; other < tile; ++other) {
      load_matrices(m[other], address + kBelow + tile_below(tile, other) * kBelowBytes + small);
      load_matrices(rest[other], address + kBelowRest + tile_below(tile, other) * kBelowBytes + small);
    }
    load_matrices(t, address + kDiagonal + tile * kDiagonalBytes + small);
  };
  read(0);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    float sum[2][2][4];
#pragma unroll
    for (int x = 0; x < 2; ++x)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 pair = both(right[x][e]);
        const float scale = x ? 1.f : before[e % 2];
        sum[x][e / 2][e % 2 * 2] = scale * pair.x, sum[x][e / 2][e % 2 * 2 + 1] = scale * pair.y;
      }
#pragma unroll
    for (int other = 0; other < tile; ++other)
#pragma unroll
      for (int x = 0; x < 2; ++x)
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          tensor_core_bf16(sum[x][n], done[x][other], {m[other][2 * n], m[other][2 * n + 1]});
          tensor_core_bf16(sum[x][n], done[x][other], {rest[other][2 * n], rest[other][2 * n + 1]});
        }
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const uint32_t left[4] = {bf16_pair(sum[x][0][0], sum[x][0][1]), bf16_pair(sum[x][0][2], sum[x][0][3]),
                                bf16_pair(sum[x][1][0], sum[x][1][1]), bf16_pair(sum[x][1][2], sum[x][1][3])};
      float out[2][4] = {};
#pragma unroll
      for (int n = 0; n < 2; ++n) tensor_core_bf16(out[n], left, {t[2 * n], t[2 * n + 1]});
#pragma unroll
      for (int e = 0; e < 4; ++e) done[x][tile][e] = bf16_pair(out[e / 2][e % 2 * 2], out[e / 2][e % 2 * 2 + 1]);
    }
    if (tile + 1 < kTiles) {
      before[0] *= decay[tile * kDim], before[1] *= decay[tile * kDim + 8];
      read(tile + 1);
    }
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const uint32_t(&result)[4] = done[x][tile];
      store_transposed(place + (x ? kValues : kRowsK) + tile * kTilePanel, result[0], result[1], result[2], result[3]);
    }
  }
}

}  // namespace k3::cuda::kda::prefill_detail::factors
