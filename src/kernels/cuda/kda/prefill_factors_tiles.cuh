// The tensor core half of the factor kernel (prefill_factors.cu): A and M, the inverses on the diagonal, W and U by
// block substitution. Products of bf16 with fp32 sums: A and M by wgmma, the substitution by m16n8k16.
#pragma once

#include "kernels/cuda/common/fragments.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/kda/prefill_factors_work.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

// The six tiles below the diagonal are numbered column by column.
__device__ __forceinline__ constexpr int tile_below(int row, int column) {
  return column == 0 ? row - 1 : column == 1 ? row + 1 : 5;
}
// Inside a tile of 16 tokens, exchanged() takes row r to token r ^ (r / 8) ^ turned(tile).
__device__ __forceinline__ int turned(int tile) { return tile % 2 * 2; }
// Whether a column of a diagonal tile is a token before that of a row: row 8 * left + lane / 4, column
// 8 * right + 2 (lane % 4) + next. kSelf: or the same one.
template <bool kSelf>
__device__ __forceinline__ bool seen(int tile, int lane, int left, int right, int next) {
  if (left != right) return left > right;
  const int row = lane / 4 ^ turned(tile), column = 2 * (lane % 4) ^ turned(tile);  // the latter is even
  return column + (next ^ left) < (row ^ left) + (kSelf ? 1 : 0);
}
// A diagonal tile of L = diag(beta) M, its columns in fp32: columns as they come, a column's tokens in order. Selects:
// above the diagonal products may be infinite.
__device__ __forceinline__ void put_diagonal(unsigned char* shared, int tile, const float* sums, int lane) {
  float* columns = reinterpret_cast<float*>(shared + kDiagonal + tile * kDiagonalBytes);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = 8 * half + (lane / 4 ^ half ^ turned(tile));
    const float beta = reinterpret_cast<const float*>(shared + kBeta)[tile * kTile + i];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = 2 * (lane % 4) + e % 2;
      columns[(e / 2 * 8 + j) * kColumnPitch + i] =
          seen<false>(tile, lane, half, e / 2, e % 2) ? beta * sums[e / 2 * 4 + half * 2 + e % 2] : 0.f;
    }
  }
}
// One half of the chunk, by the warpgroup of that number:
//   A_ij = q_i . (k_j e^(G_i - G_j)), to the panel that leaves for memory       warps 0 and 1, a tile of rows each
//   M_ij = k_i . (k_j e^(G_i - G_j)): below the diagonal -M as bf16 (and what that rounding lost), on the diagonal L
//                                                                               warps 2 and 3
// The columns are those of the half, behind those of the half before it. The results lie where Kb lay: they wait until
// it has left. Then all operands of step 2 are dead but rows k and Qd (parity: of the chunk).
template <int kHalf>
__device__ __forceinline__ void multiply_half(unsigned char* shared, uint32_t address, unsigned parity) {
  const int lane = static_cast<int>(own_thread() % 32), warp = static_cast<int>(own_thread() / 32 % 4),
            row = 2 * kHalf + warp % 2;  // tile of rows
  constexpr int kColumnTiles = 2 + 2 * kHalf, kPitch = kHalf ? kPanel : kTileBytes;
  const uint32_t rows = address + (warp < 2 ? kRowsQ : kRowsK) + row * kTilePanel,
                 columns = address + (kHalf ? kLowerKeys : kFirstKeys);
  uint32_t left[8][4];
#pragma unroll
  for (int k = 0; k < 8; ++k)
    load_matrices(left[k], rows + k / 4 * kPanel + panel_offset(lane % 16, k % 4 * 32 + lane / 16 * 16));
  float sums[8 * kColumnTiles];
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const uint64_t right = further(panel_descriptor(columns), k / 4 * kPitch + k % 4 * 32);
    if (k == 0) wgmma<0, 1, 0>(sums, left[k], right);
    else wgmma<1, 1, 0>(sums, left[k], right);
  }
  wgmma_commit();
  wgmma_wait<0>();
  settle(sums);
  if (own_thread() / 32 == kSender / 32) bulk_wait_read<1>();  // Kb
  barrier_arrive(address + kOperandsRead);
  barrier_wait(address + kOperandsRead, parity);
  if (warp < 2) {
#pragma unroll
    for (int column = 0; column < kTiles; ++column) {
      uint32_t words[4] = {};
#pragma unroll
      for (int e = 0; e < 4; ++e) {  // pieces of columns, then halves of rows
        if (column >= kColumnTiles || column > row) break;
        const float left_one = sums[8 * column + 2 * e], right_one = sums[8 * column + 2 * e + 1];
        words[e] = column < row ? bf16_pair(left_one, right_one)
                                : bf16_pair(seen<true>(row, lane, e % 2, e / 2, 0) ? left_one : 0.f,
                                            seen<true>(row, lane, e % 2, e / 2, 1) ? right_one : 0.f);
      }
      store_matrices(address + kScoresOut + panel_offset(row * kTile + lane % 16, column * 32 + lane / 16 * 16),
                     words[0], words[1], words[2], words[3]);
    }
  } else {
#pragma unroll
    for (int column = 2 * kHalf; column < kColumnTiles; ++column)
      if (column == row) put_diagonal(shared, row, sums + 8 * column, lane);
    arrive_pair(warp - 2);
    const uint32_t small = address + kBelow + small_offset(lane % 16, lane / 16 * 16);
#pragma unroll
    for (int column = 0; column < kColumnTiles - 1; ++column) {
      if (column >= row) break;
      uint32_t high[4], rest[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const SplitPair terms(-sums[8 * column + 2 * e], -sums[8 * column + 2 * e + 1]);
        high[e] = terms.high, rest[e] = terms.low;
      }
      const uint32_t to = small + tile_below(row, column) * kBelowBytes;
      store_matrices(to, high[0], high[1], high[2], high[3]);
      store_matrices(to + kBelowRest - kBelow, rest[0], rest[1], rest[2], rest[3]);
    }
  }
}

// T diag(beta) with T = (I + L)^-1 of two diagonal tiles, `tile` by lanes 0 to 15 and tile + 2 by the others. With L as
// [A, 0; C, D], T is [A', 0; -D' C A', D']: the inverses A' and D' of 8 tokens in fp32 by columns, of which a lane owns
// one; then C and what it stands between, numbers of at most 1, as fp16 (2^-12 of each) in two tensor core products,
// the two tiles in the corners of one. T's rows are stored in the order of tokens, its columns in exchanged order.
__device__ __forceinline__ void invert_diagonals(unsigned char* shared, int tile) {
  const int lane = static_cast<int>(own_thread() % 32), half = lane / 8 % 2, column = lane % 8, row = lane / 4,
            pair = lane % 4;
  const auto place = [&](int which) { return shared + kDiagonal + (tile + 2 * which) * kDiagonalBytes; };
  // L's column of token j is column j ^ (j / 8), or 2 more or less in every other tile.
  const int turn = turned(tile) * kColumnPitch, swap = half * kColumnPitch;
  uint32_t c[2];
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    const float* two = reinterpret_cast<const float*>(place(which)) + 2 * pair * kColumnPitch +
                       (pair % 2 ? -turn : turn) + 8 + row;
    c[which] = half_pair(two[0], two[kColumnPitch]);
  }
  const float* first = reinterpret_cast<const float*>(place(lane / 16)) + half * (8 * kColumnPitch + 8);
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = i == column ? 1.f : 0.f;
#pragma unroll
  for (int j = 0; j < 7; ++j)
#pragma unroll
    for (int four = (j + 1) / 4 * 4; four < 8; four += 4) {
      const float4 l = *reinterpret_cast<const float4*>(first + j * kColumnPitch + (j / 2 % 2 ? -turn : turn) +
                                                        (j % 2 ? -swap : swap) + four);
      if (four > j) x[four] -= l.x * x[j];
      if (four + 1 > j) x[four + 1] -= l.y * x[j];
      if (four + 2 > j) x[four + 2] -= l.z * x[j];
      if (four + 3 > j) x[four + 3] -= l.w * x[j];
    }
  const float* betas = reinterpret_cast<const float*>(shared + kBeta) + tile * kTile;
  const float beta = betas[lane / 16 * 2 * kTile + 8 * half + column], low[2] = {betas[row], betas[2 * kTile + row]};
  __syncwarp();  // T takes the place of L, and behind it stand A' and D' of both tiles, a row for a column
  unsigned char* inverses = place(0) + kTile * kTile * 2 + 16 * lane;
  *reinterpret_cast<uint4*>(inverses) =
      make_uint4(half_pair(x[0], x[1]), half_pair(x[2], x[3]), half_pair(x[4], x[5]), half_pair(x[6], x[7]));
  const auto put = [&](int which, int i, int j, float value) {
    *reinterpret_cast<__nv_bfloat16*>(place(which) + small_offset(i, 2 * (j ^ j / 8 ^ turned(tile)))) =
        __float2bfloat16(value);
  };
#pragma unroll
  for (int i = 0; i < 8; ++i) put(lane / 16, 8 * half + i, 8 * half + column, beta * x[i]);
  if (half) *reinterpret_cast<uint4*>(place(lane / 16) + small_offset(column, 16)) = make_uint4(0, 0, 0, 0);
  __syncwarp();
  uint32_t columns[4], rows[4];  // A' and D' of the first tile, of the second: transposed; as they are
  load_matrices(columns, shared_address(inverses));
  load_transposed(rows, shared_address(inverses));
  float product[4] = {}, corner[4] = {};  // (C A')^T, (D' C A')^T
  tensor_core_half(product, {columns[0], 0, 0, columns[2]}, c[0], c[1]);
  tensor_core_half(corner, {half_pair(product[0], product[1]), 0, 0, half_pair(product[2], product[3])}, rows[1],
                   rows[3]);
#pragma unroll
  for (int i = 0; i < 4; ++i) put(i / 2, 8 + 2 * pair + i % 2, row, -low[i / 2] * corner[i]);
}

// W and U, transposed, of the warp's 16 channels, tile of tokens by tile of tokens:
//   X_I = T_I diag(beta_I) (B_I - sum_(J < I) M_IJ X_J),   B = k e^G and v
// The sums of X_J are the left operands of the products that follow. The results take the places of rows k and v.
__device__ __forceinline__ void substitute(unsigned char* shared, uint32_t address, int warp) {
  const int lane = static_cast<int>(own_thread() % 32);
  const uint32_t small = small_offset((lane & 7) + (lane >> 4) * 8, (lane >> 3 & 1) * 16),
                 inverse = small ^ (lane >> 4) * 32;  // rows of T in exchanged order, but for turned()
  const int token = lane / 16 * 8 + lane % 8, byte = (16 * warp + lane / 8 % 2 * 8) % 64 * 2;
  const uint32_t place = address + kRowsK + 16 * warp / 64 * kPanel + panel_offset(token, byte);
  const float* decay = reinterpret_cast<const float*>(shared + kTileDecay) + 16 * warp + lane / 4;
  float before[2] = {decay[0], decay[8]};  // decay up to the reference of rows k, channels lane / 4 and 8 more
  float sums[kTiles][2][2][4];  // [tile][k or v][8 tokens]
  uint32_t left[4];             // of v's first tile, which stays as it is
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile == 2) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        before[half] *= decay[kDecayPitch + 8 * half] * decay[2 * kDecayPitch + 8 * half];
    }
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      uint32_t right[4];
      load_transposed(right, place + x * (kValues - kRowsK) + tile * kTilePanel);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 pair = both(right[e]);
        const float scale = x ? 1.f : before[e % 2];
        float* sum = sums[tile][x][e / 2] + e % 2 * 2;
        sum[0] = scale * pair.x, sum[1] = scale * pair.y;
        if (x == 1 && tile == 0) left[e] = right[e];
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    uint32_t t[4], done[2][4];
    load_matrices(t, address + kDiagonal + tile * kDiagonalBytes + (inverse ^ turned(tile) * 32));
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      uint32_t own[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float* sum = sums[tile][x][e / 2] + e % 2 * 2;
        own[e] = tile == 0 && x == 1 ? left[e] : bf16_pair(sum[0], sum[1]);
      }
      float out[2][4] = {};
#pragma unroll
      for (int n = 0; n < 2; ++n) tensor_core_bf16(out[n], own, {t[2 * n], t[2 * n + 1]});
#pragma unroll
      for (int e = 0; e < 4; ++e) done[x][e] = bf16_pair(out[e / 2][e % 2 * 2], out[e / 2][e % 2 * 2 + 1]);
    }
#pragma unroll
    for (int later = tile + 1; later < kTiles; ++later) {
      uint32_t m[2][4];  // M and its rest
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        load_matrices(m[term], address + (term ? kBelowRest : kBelow) + tile_below(later, tile) * kBelowBytes + small);
#pragma unroll
        for (int x = 0; x < 2; ++x)
#pragma unroll
          for (int n = 0; n < 2; ++n)
            tensor_core_bf16(sums[later][x][n], done[x], {m[term][2 * n], m[term][2 * n + 1]});
      }
    }
#pragma unroll
    for (int x = 0; x < 2; ++x)
      store_transposed(place + x * (kValues - kRowsK) + tile * kTilePanel, done[x][0], done[x][1], done[x][2],
                       done[x][3]);
  }
}

}  // namespace k3::cuda::kda::prefill_detail::factors
