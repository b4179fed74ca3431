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
// Byte `byte` of row `row` of a [16][16] bf16 tile: eight rows of one half lie in eight different 16-byte columns.
__device__ __forceinline__ int small_offset(int row, int byte) { return row * 32 + (byte ^ ((row >> 2 & 1) << 4)); }

// What becomes of one tile of both products:
//   A_ij = q_i . (k_j e^(G_i - G_j)), to the panel that leaves for memory
//   M_ij = k_i . (k_j e^(G_i - G_j)): below the diagonal -M as bf16 (and what that rounding lost), on the diagonal the
//   columns of L = diag(beta) M in fp32
template <bool kOnDiagonal>
__device__ __forceinline__ void put_tile(unsigned char* shared, int row, int column, const float (&scores)[2][4],
                                         const float (&keys)[2][4]) {
  const int lane = static_cast<int>(own_thread() % 32);
  float* diagonal = reinterpret_cast<float*>(shared + kDiagonal + row * kDiagonalBytes);
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int i = 8 * half + lane / 4, j = 8 * n + 2 * (lane % 4);
      float q = scores[n][2 * half], q_next = scores[n][2 * half + 1];
      const float k = keys[n][2 * half], k_next = keys[n][2 * half + 1];
      if constexpr (!kOnDiagonal) {
        unsigned char* to = shared + kBelow + tile_below(row, column) * kBelowBytes + small_offset(i, 2 * j);
        const uint32_t high = bf16_pair(-k, -k_next);
        *reinterpret_cast<uint32_t*>(to) = high;
        *reinterpret_cast<uint32_t*>(to + kBelowRest - kBelow) = bf16_pair(-k - both(high).x, -k_next - both(high).y);
      } else {  // selects: above the diagonal products may be infinite
        const float beta = reinterpret_cast<const float*>(shared + kBeta)[row * kTile + i];
        diagonal[j * kColumnPitch + i] = j < i ? beta * k : 0.f;
        diagonal[(j + 1) * kColumnPitch + i] = j + 1 < i ? beta * k_next : 0.f;
        q = j <= i ? q : 0.f, q_next = j + 1 <= i ? q_next : 0.f;
      }
      const int score = panel_offset(row * kTile + i, (column * kTile + j) * 2);
      *reinterpret_cast<uint32_t*>(shared + kScoresOut + score) = bf16_pair(q, q_next);
    }
}

// kCount neighbouring tiles of both products, in one row of tiles, from tile column `column` on. They share the rows;
// the columns are same k within a half of 32 tokens and end k across (two tiles).
template <bool kOnDiagonal, int kCount>
__device__ __forceinline__ void multiply_tiles(unsigned char* shared, uint32_t address, int row, int column) {
  const int lane = static_cast<int>(own_thread() % 32), swizzle = (lane & 7) << 4;
  constexpr int kPitch = kCount == 2 ? kTileBytes : kPanel;  // between the panels
  const uint32_t rows = address + row * kTilePanel + (lane & 15) * 128,
                 columns = address + (kCount == 2 ? kEndKeys : kSameKeys) + column * kTilePanel +
                           ((lane & 7) + (lane >> 4) * 8) * 128;
  const int row_byte = (lane >> 4) * 16, column_byte = (lane >> 3 & 1) * 16;
  float scores[kCount][2][4] = {}, keys[kCount][2][4] = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint32_t left[4], right[kCount][4];
#pragma unroll
    for (int t = 0; t < kCount; ++t)
      load_matrices(right[t], columns + t * kTilePanel + k / 4 * kPitch + ((k % 4 * 32 + column_byte) ^ swizzle));
    const uint32_t piece = rows + k / 4 * kPanel + ((k % 4 * 32 + row_byte) ^ swizzle);
    load_matrices(left, piece + kRowsK);
#pragma unroll
    for (int t = 0; t < kCount; ++t)
#pragma unroll
      for (int n = 0; n < 2; ++n) tensor_core_bf16(keys[t][n], left, {right[t][2 * n], right[t][2 * n + 1]});
    load_matrices(left, piece + kRowsQ);
#pragma unroll
    for (int t = 0; t < kCount; ++t)
#pragma unroll
      for (int n = 0; n < 2; ++n) tensor_core_bf16(scores[t][n], left, {right[t][2 * n], right[t][2 * n + 1]});
  }
#pragma unroll
  for (int t = 0; t < kCount; ++t) put_tile<kOnDiagonal>(shared, row, column + t, scores[t], keys[t]);
}

// T diag(beta) with T = (I + L)^-1 of two diagonal tiles, `tile` by lanes 0 to 15 and tile + 2 by the others, in fp32
// by columns: a lane owns one.
__device__ __forceinline__ void invert_diagonals(unsigned char* shared, int tile) {
  const int lane = static_cast<int>(own_thread() % 32), column = lane % kTile;
  tile += lane / kTile * 2;
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
  for (int i = 0; i < kTile; ++i)
    *reinterpret_cast<__nv_bfloat16*>(place + small_offset(i, 2 * column)) = __float2bfloat16(beta * x[i]);
}

// W and U, transposed, of the warp's 16 channels, tile of tokens by tile of tokens:
//   X_I = T_I diag(beta_I) (B_I - sum_(J < I) M_IJ X_J),   B = k e^G and v
// The sums of X_J are the left operands of the products that follow. The results take the places of rows k and v.
__device__ __forceinline__ void substitute(unsigned char* shared, uint32_t address, int warp) {
  const int lane = static_cast<int>(own_thread() % 32);
  const uint32_t small = small_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3 & 1) * 16);
  const int token = lane / 16 * 8 + lane % 8, byte = (16 * warp + lane / 8 % 2 * 8) % 64 * 2;
  const uint32_t place = address + kRowsK + 16 * warp / 64 * kPanel + panel_offset(token, byte);
  const float* decay = reinterpret_cast<const float*>(shared + kTileDecay) + 16 * warp + lane / 4;
  float before[2] = {decay[0], decay[8]};  // decay up to the reference of rows k, channels lane / 4 and 8 more
  uint32_t done[2][kTiles][4];
  // What a tile reads; read before the tile ahead of it is stored, so that nothing waits for these loads.
  uint32_t right[2][4], t[4], m[kTiles - 1][4], rest[kTiles - 1][4];
  const auto read = [&](int tile) {
#pragma unroll
    for (int x = 0; x < 2; ++x) load_transposed(right[x], place + x * (kValues - kRowsK) + tile * kTilePanel);
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
      uint32_t left[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        left[e] = tile == 0 && x == 1 ? right[1][e] : bf16_pair(sum[x][e / 2][e % 2 * 2], sum[x][e / 2][e % 2 * 2 + 1]);
      float out[2][4] = {};
#pragma unroll
      for (int n = 0; n < 2; ++n) tensor_core_bf16(out[n], left, {t[2 * n], t[2 * n + 1]});
#pragma unroll
      for (int e = 0; e < 4; ++e) done[x][tile][e] = bf16_pair(out[e / 2][e % 2 * 2], out[e / 2][e % 2 * 2 + 1]);
    }
    if (tile + 1 < kTiles) {
      if (tile == 1) {
#pragma unroll
        for (int half = 0; half < 2; ++half) before[half] *= decay[kDim + 8 * half] * decay[2 * kDim + 8 * half];
      }
      read(tile + 1);
    }
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const uint32_t(&result)[4] = done[x][tile];
      store_transposed(place + x * (kValues - kRowsK) + tile * kTilePanel, result[0], result[1], result[2], result[3]);
    }
  }
}

}  // namespace k3::cuda::kda::prefill_detail::factors
