// The chunk form of step 4 on the tensor cores (mma.sync m16n8k16, bf16 in, fp32 sums): what steps 5 and 6 share.
// 8 warps, chunks of 32 tokens.
//
// Why a reference. q_i . (k_j e^(G_i - G_j)) has a factor per channel that depends on i and j; a matrix product wants
// one factor of the row and one of the column. e^G_i times e^-G_j would do, but with g = -5 G reaches -160 in 32
// tokens, and e^160 is no number. With G measured from the middle of the chunk, M = G_15, the factors e^(G_i - M) and
// e^(M - G_j) stay within e^80 = 2^115.4, and bf16 goes to 2^127. Below the diagonal their product is at most 1. Above
// it, it may be infinite: those entries are removed by a select, never by multiplying with 0.
// Everything that meets the state is measured from the chunk's ends, where factors are at most 1:
// Q e^G, K e^G (in W), K e^(G_C - G).
//
// The state lies transposed in the sums: warp w owns values 16 w .. 16 w + 15, all 128 keys, 64 registers a thread.
// The sums of one product, rounded to bf16 in pairs, are the left operand of the next, in the registers where they lie:
//   R^T = U^T - S^T W^T;   O^T = S^T (Q e^G)^T + R^T A^T;   S^T <- S^T (.) e^G_C + R^T (K e^(G_C - G))
// So no value crosses from warp to warp, and the chain of a chunk is three products long.
// The right operands are read from shared memory as pairs along the contraction index, which decides who is stored
// transposed. Row pitches of 136 and 40 elements let the 32 lanes of such a read meet 32 banks.
// Precision: fp32 sums, states, exponents and inverse; every operand of a product rounded once to bf16 (2^-9).
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/common/tile_product.cuh"
#include "ladder.h"

namespace k3::learn::kda {

using namespace k3::cuda;
using bf16 = __nv_bfloat16;

inline constexpr int kChunk = 32, kThreads = 256, kHalf = kChunk / 2, kWide = kDim + 8, kNarrow = kChunk + 8;

struct Record {  // what the state loop needs of a chunk; step 6 sends it through memory as it is
  bf16 W[kChunk][kWide];               // T beta (K e^G)
  bf16 decayed_queries[kChunk][kWide];  // scale Q e^G
  bf16 U[kDim][kNarrow];               // (T beta V)^T
  bf16 restored_keys[kDim][kNarrow];   // (K e^(G_C - G))^T
  bf16 A[kChunk][kNarrow];
  float decay[kDim];  // e^G_C
};
static_assert(sizeof(Record) % 16 == 0);

struct FactorTiles {
  bf16 row_q[kChunk][kWide], row_k[kChunk][kWide], column_k[kChunk][kWide];  // relative to M
  bf16 decayed_keys[kDim][kNarrow];                                         // (K e^G)^T
  bf16 T[kChunk][kNarrow];                                                  // T diag(beta)
  float L[kChunk][kChunk + 4];                                              // transposed: L[j][i]
  float beta[kChunk];
  float middle[kDim];
};

__device__ __forceinline__ uint32_t pair_at(const bf16* p) { return *reinterpret_cast<const uint32_t*>(p); }

// Everything of a chunk that does not depend on the state. Ends without a barrier.
__device__ __forceinline__ void chunk_factors(const Arguments& a, Record& out, FactorTiles& s, int head, int first) {
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, count = min(kChunk, a.tokens - first);
  {  // ---- operands: a thread has one channel of 16 tokens; tokens behind the end are zeros without decay
    const int channel = thread % kDim, row0 = thread / kDim * kHalf;
    float q[kHalf], k[kHalf], v[kHalf], G[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const std::int64_t at = ((static_cast<std::int64_t>(first) + row0 + i) * a.heads + head) * kDim + channel;
      const bool there = row0 + i < count;
      q[i] = there ? a.scale * load1(a.q + at) : 0.f, k[i] = there ? load1(a.k + at) : 0.f;
      v[i] = there ? load1(a.v + at) : 0.f, G[i] = there ? a.g[at] * 1.4426950408889634f : 0.f;  // powers of two
    }
#pragma unroll
    for (int i = 1; i < kHalf; ++i) G[i] += G[i - 1];
    // G is now measured from the start of this half: from M in the second half, and M is the end of the first.
    (row0 ? out.decay : s.middle)[channel] = G[kHalf - 1];
    if (thread < kChunk)
      s.beta[thread] = thread < count ? a.beta[(static_cast<std::int64_t>(first) + thread) * a.heads + head] : 0.f;
    __syncthreads();
    const float middle = s.middle[channel], end = middle + out.decay[channel];
#pragma unroll
    for (int i = 0; i < kHalf; i += 2) {
      float decayed[2], restored[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = row0 + i + e;
        const float from_start = row0 ? middle + G[i + e] : G[i + e], from_middle = row0 ? G[i + e] : G[i + e] - middle;
        const float to_row = fast_exp2(from_start), relative = fast_exp2(from_middle);
        decayed[e] = k[i + e] * to_row, restored[e] = k[i + e] * fast_exp2(end - from_start);
        store1(&s.row_q[row][channel], q[i + e] * relative);
        store1(&s.row_k[row][channel], k[i + e] * relative);
        store1(&s.column_k[row][channel], k[i + e] * fast_exp2(-from_middle));
        store1(&out.decayed_queries[row][channel], q[i + e] * to_row);
      }
      store2(&s.decayed_keys[channel][row0 + i], decayed[0], decayed[1]);
      store2(&out.restored_keys[channel][row0 + i], restored[0], restored[1]);
      store2(&out.U[channel][row0 + i], v[i], v[i + 1]);  // V^T, until U takes its place
    }
    __syncthreads();
    if (row0) out.decay[channel] = fast_exp2(end);
  }
  {  // ---- A and L: a warp has 16 x 16 of one of them
    const int row0 = warp / 2 % 2 * 16, column0 = warp % 2 * 16;
    const bf16(*rows)[kWide] = warp < 4 ? s.row_q : s.row_k;
    WarpTile<1, 2> sum;
    sum.clear();
    multiply_bf16<kDim>(
        sum, [&](int i, int d) { return pair_at(&rows[row0 + i][d]); },
        [&](int j, int d) { return pair_at(&s.column_k[column0 + j][d]); });
    sum.each_pair([&](int i, int j, float x, float y) {
      i += row0, j += column0;
      if (warp < 4) {
        store2(&out.A[i][j], i >= j ? x : 0.f, i >= j + 1 ? y : 0.f);
      } else {
        s.L[j][i] = i > j ? s.beta[i] * x : 0.f, s.L[j + 1][i] = i > j + 1 ? s.beta[i] * y : 0.f;
      }
    });
  }
  __syncthreads();
  if (warp == 0) {  // ---- T = (I + L)^-1 by forward substitution, lane j has column j
    float x[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = i == lane ? 1.f : 0.f;
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
#pragma unroll
      for (int i = j + 1; i < kChunk; ++i) x[i] -= s.L[j][i] * x[j];
#pragma unroll
    for (int i = 0; i < kChunk; ++i) store1(&s.T[i][lane], x[i] * s.beta[lane]);
  }
  __syncthreads();
  {  // ---- W = T beta (K e^G) of 16 keys, U^T = V^T (T beta)^T of 16 values
    const int own = 16 * warp;
    WarpTile<2, 2> w;
    w.clear();
    multiply_bf16<kChunk>(
        w, [&](int i, int j) { return pair_at(&s.T[i][j]); },
        [&](int key, int j) { return pair_at(&s.decayed_keys[own + key][j]); });
    w.each_pair([&](int i, int key, float x, float y) { store2(&out.W[i][own + key], x, y); });
    WarpTile<1, 4> u;
    u.clear();
    multiply_bf16<kChunk>(
        u, [&](int value, int j) { return pair_at(&out.U[own + value][j]); },
        [&](int i, int j) { return pair_at(&s.T[i][j]); });
    __syncwarp();
    u.each_pair([&](int value, int i, float x, float y) { store2(&out.U[own + value][i], x, y); });
  }
}

// The state of this warp's 16 values: S^T in sum order, tile n holds keys 8 n .. 8 n + 7.
struct TransposedState {
  WarpTile<1, kDim / 8> S;

  template <class Visit>  // visit(element, offset in a state [key, value])
  __device__ __forceinline__ void each(Visit visit) {
    S.each_pair([&](int value, int key, float& x, float& y) {
      value += threadIdx.x / 32 * 16;
      visit(x, key * kDim + value), visit(y, (key + 1) * kDim + value);
    });
  }
  // Two neighbouring tiles of sums as the left operand of 16 steps of the contraction.
  template <int kTiles>
  static __device__ __forceinline__ void left_operand(uint32_t (&left)[4], const WarpTile<1, kTiles>& sum, int step) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* pair = &sum.value[0][2 * step + e / 2][2 * (e % 2)];
      left[e] = bf16_pair(pair[0], pair[1]);
    }
  }
  // sum += left * right for 16 steps of the contraction: rows n of `right`, pairs along k from column k0.
  template <int kTiles, int kPitch>
  static __device__ __forceinline__ void add(WarpTile<1, kTiles>& sum, const uint32_t (&left)[4],
                                             const bf16 (&right)[8 * kTiles][kPitch], int k0) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const bf16* at = &right[8 * n + lane / 4][k0 + 2 * (lane % 4)];
      const uint32_t b[2] = {pair_at(at), pair_at(at + 8)};
      tensor_core_bf16(sum.value[0][n], left, b);
    }
  }

  __device__ __forceinline__ void advance(const Arguments& a, const Record& in, int head, int first) {
    const int own = threadIdx.x / 32 * 16;
    uint32_t left[4];
    WarpTile<1, kChunk / 8> r, o;
    r.clear(), o.clear();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      left_operand(left, S, step);
      add(r, left, in.W, 16 * step);
      add(o, left, in.decayed_queries, 16 * step);
    }
    r.each_pair([&](int value, int token, float& x, float& y) {
      const float2 u = both(pair_at(&in.U[own + value][token]));
      x = u.x - x, y = u.y - y;
    });
    S.each_pair([&](int, int key, float& x, float& y) { x *= in.decay[key], y *= in.decay[key + 1]; });
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      left_operand(left, r, step);
      add(S, left, in.restored_keys, 16 * step);
      add(o, left, in.A, 16 * step);
    }
    const int count = min(kChunk, a.tokens - first);
    o.each_pair([&](int value, int token, float x, float y) {
      bf16* out = a.o + ((static_cast<std::int64_t>(first) + token) * a.heads + head) * kDim + own + value;
      if (token < count) store1(out, x);
      if (token + 1 < count) store1(out + static_cast<std::int64_t>(a.heads) * kDim, y);
    });
  }
};

}  // namespace k3::learn::kda
