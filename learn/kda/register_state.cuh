// The state of steps 2 and 3: one warp owns 8 value columns of a head, lane l the keys 4 l .. 4 l + 3 of each, 32
// registers a thread. Blocks of 4 warps hold 32 columns.
//
// q and k meet the same decayed state, so both sums over the keys run in one pass:
//   D = e^g (.) S;   u = beta (v - D^T k);   o = scale (D^T q + (k . q) u);   S <- D + k u^T
// The 16 sums (8 columns, with k and with q) of 32 lanes are folded: in each round a lane gives half of its sums away
// and keeps the other half, 8 + 4 + 2 + 1 + 1 shuffles instead of 5 x 16. Then lane l has column l / 2 % 8, of D^T k in
// the lower half of the warp, of D^T q in the upper half.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "ladder.h"

namespace k3::learn::kda {

inline constexpr int kColumns = 8, kWarps = 4, kBlockColumns = kColumns * kWarps;

// Lanes 2 kHalf apart share 2 kHalf sums; each keeps half of them.
template <int kHalf>
__device__ __forceinline__ void fold(float (&sums)[2 * kColumns]) {
  const bool upper = threadIdx.x & (2 * kHalf);
#pragma unroll
  for (int j = 0; j < kHalf; ++j) {
    const float low = sums[j], high = sums[j + kHalf], received = k3::cuda::shuffle_xor(upper ? low : high, 2 * kHalf);
    sums[j] = (upper ? high : low) + received;
  }
  if constexpr (kHalf > 1) fold<kHalf / 2>(sums);
}

struct WarpColumns {
  float S[4][kColumns];

  // Calls visit(element, offset in a state [key, value]) for what this lane holds.
  template <class Visit>
  __device__ __forceinline__ void each(int column0, Visit visit) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) visit(S[i][j], (4 * (threadIdx.x % 32) + i) * kDim + column0 + j);
  }
  // The column, 0 .. 7, that this lane has after the fold.
  static __device__ __forceinline__ int own_column() { return threadIdx.x / 2 % 8; }

  // One token: q, k and g of this lane's four keys, v of own_column(). Returns o / scale, of own_column(), in the lanes
  // of the upper half.
  __device__ __forceinline__ float advance(float4 q4, float4 k4, float4 g4, float v, float beta) {
    using namespace k3::cuda;
    const float q[4] = {q4.x, q4.y, q4.z, q4.w}, k[4] = {k4.x, k4.y, k4.z, k4.w},
                decay[4] = {fast_exp(g4.x), fast_exp(g4.y), fast_exp(g4.z), fast_exp(g4.w)};
    float sums[2 * kColumns] = {}, k_q = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      k_q += k[i] * q[i];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        S[i][j] *= decay[i];
        sums[j] += S[i][j] * k[i];
        sums[kColumns + j] += S[i][j] * q[i];
      }
    }
    fold<kColumns>(sums);
    sums[0] += shuffle_xor(sums[0], 1);
#pragma unroll
    for (int step = 16; step >= 1; step /= 2) k_q += shuffle_xor(k_q, step);
    const float other = shuffle_xor(sums[0], 16), seen = threadIdx.x % 32 < 16 ? sums[0] : other;
    const float u = beta * (v - seen);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float u_j = shuffle(u, 2 * j);
#pragma unroll
      for (int i = 0; i < 4; ++i) S[i][j] += k[i] * u_j;
    }
    return sums[0] + k_q * u;
  }
};

}  // namespace k3::learn::kda
