// The elementwise half of the factor kernel (prefill_factors.cu). A thread owns two channels of one tile of 16 tokens
// and walks along the tokens: convolution, SiLU and gates need no exchange, decays are running products.
// alpha = e^g; with D_i = alpha_0 ... alpha_i inside the tile, E_i = alpha_(i+1) ... alpha_15 and the tile's decay
// d = D_15:  rows q D, rows k D (factors <= 1), same k E / d (<= 2^115.4), end k E (<= 1).
#pragma once

#include "kernels/cuda/kda/prefill_factors_work.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ uint32_t word_at(const unsigned char* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ __forceinline__ void put_word(unsigned char* p, uint32_t word) { *reinterpret_cast<uint32_t*>(p) = word; }

// x sigmoid(x), from kSlope x: kSlope x / (kSlope (1 + e^-x)).
inline constexpr float kSlope = -kLog2E;
__device__ __forceinline__ float silu(float x) {
  return x * approximate_reciprocal(fmaf(kSlope, fast_exp2(x), kSlope));
}

// Convolution and SiLU of 16 tokens; raw(i) is the pair of channels at token i - 3 of the tile. squares: of each token.
template <bool kSquares, class Raw>
__device__ __forceinline__ void convolve(uint32_t (&out)[kTile], float (&squares)[kTile], const unsigned char* taps,
                                         Raw raw) {
  float4 first = *reinterpret_cast<const float4*>(taps), second = *reinterpret_cast<const float4*>(taps + 16);
  first.x *= kSlope, first.y *= kSlope, first.z *= kSlope, first.w *= kSlope;
  second.x *= kSlope, second.y *= kSlope, second.z *= kSlope, second.w *= kSlope;
  float2 x0 = both(raw(0)), x1 = both(raw(1)), x2 = both(raw(2));
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float2 x3 = both(raw(i + 3));
    const float left = silu(first.x * x0.x + first.y * x1.x + first.z * x2.x + first.w * x3.x);
    const float right = silu(second.x * x0.y + second.y * x1.y + second.z * x2.y + second.w * x3.y);
    out[i] = bf16_pair(left, right);
    if constexpr (kSquares) {
      const float2 rounded = both(out[i]);
      squares[i] = rounded.x * rounded.x + rounded.y * rounded.y;
    }
    x0 = x1, x1 = x2, x2 = x3;
  }
}
// Tokens behind the end of the row: zero.
__device__ __forceinline__ void cut(uint32_t (&x)[kTile], int count) {
  if (count >= kTile) return;
#pragma unroll
  for (int i = 0; i < kTile; ++i)
    if (i >= count) x[i] = 0;
}

// Sums over the warp's 64 channels: lane l (and l + 16) ends with token l % 16. Through shuffles, not through shared
// memory, behind whose stores no load could move up.
template <int kWidth = 8>
__device__ __forceinline__ float fold_tokens(float (&x)[kTile]) {
  const bool upper = threadIdx.x & kWidth;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float kept = upper ? x[i + kWidth] : x[i], sent = upper ? x[i] : x[i + kWidth];
    x[i] = kept + shuffle_xor(sent, kWidth);
  }
  if constexpr (kWidth > 1) return fold_tokens<kWidth / 2>(x);
  return x[0] + shuffle_xor(x[0], 16);
}

// alpha of 16 tokens; z(i) is the pair of decay logits. Returns the tile's decay.
template <class Logits>
__device__ __forceinline__ float2 gates(float2 (&alpha)[kTile], Logits z, float2 bias, float speed, float bound,
                                        int count) {
  const float slope = -kLog2E * speed, inverse_bound = approximate_reciprocal(kLog2E * bound);
  const float2 shift = make_float2(slope * bias.x, slope * bias.y);
  const auto decay_of = [&](float x) {  // 2^(log2 e bound / (1 + 2^x))
    return fast_exp2(approximate_reciprocal(fmaf(inverse_bound, fast_exp2(x), inverse_bound)));
  };
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float2 logit = both(z(i));
    alpha[i] = make_float2(decay_of(fmaf(slope, logit.x, shift.x)), decay_of(fmaf(slope, logit.y, shift.y)));
  }
  if (count < kTile) {
#pragma unroll
    for (int i = 0; i < kTile; ++i)
      if (i >= count) alpha[i] = make_float2(1.f, 1.f);
  }
  float2 part[4];  // four chains, not one
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    part[i] = alpha[i];
#pragma unroll
    for (int j = i + 4; j < kTile; j += 4) part[i].x *= alpha[j].x, part[i].y *= alpha[j].y;
  }
  return make_float2((part[0].x * part[1].x) * (part[2].x * part[3].x),
                     (part[0].y * part[1].y) * (part[2].y * part[3].y));
}

// Where token i of a tile lies: `channels` is the place of the thread's channels in the tile's first row.
__device__ __forceinline__ unsigned char* at_token(unsigned char* tile, int channels, int i) {
  return tile + i * 128 + (channels ^ ((i & 7) << 4));
}

// Writes the operands of the thread's channels and tile: rows q, rows k, same k, end k for each later tile; Qd and Kb
// go to memory. `lengths`: (|q|^-1 dim^-1/2, |k|^-1) of the 16 tokens.
__device__ __forceinline__ void put_operands(unsigned char* shared, unsigned char* block, const uint32_t (&q)[kTile],
                                             const uint32_t (&k)[kTile], const float2 (&alpha)[kTile],
                                             const float2* lengths, int tile, int channel) {
  const int channels = channel % 64 * 2, panel = channel / 64;
  const int own = panel * kPanel + tile * kTilePanel;  // of the tile in a [64][128] operand
  float2 decay[kTiles], before = make_float2(1.f, 1.f);  // all loads come before the first store
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
    decay[t] = *reinterpret_cast<const float2*>(shared + kTileDecay + (t * kDim + channel) * 4);
#pragma unroll
  for (int t = 0; t < kTiles - 1; ++t)
    before.x *= t < tile ? decay[t].x : 1.f, before.y *= t < tile ? decay[t].y : 1.f;
  float2 x[kTile], length_of[8], d = make_float2(1.f, 1.f);
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    if (i % 8 == 0) {
#pragma unroll
      for (int ahead = 0; ahead < 8; ++ahead) length_of[ahead] = lengths[i + ahead];
    }
    const float2 length = length_of[i % 8];
    d.x *= alpha[i].x, d.y *= alpha[i].y;
    const float2 qx = both(q[i]), kx = both(k[i]);
    const float2 row = make_float2(qx.x * (length.x * d.x), qx.y * (length.x * d.y));
    x[i] = make_float2(kx.x * length.y, kx.y * length.y);
    put_word(at_token(shared + kRowsQ + own, channels, i), bf16_pair(row.x, row.y));
    put_word(at_token(shared + kRowsK + own, channels, i), bf16_pair(x[i].x * d.x, x[i].y * d.y));
    put_word(at_token(block + kDecayedQueries + own, channels, i), bf16_pair(row.x * before.x, row.y * before.y));
  }
  const float2 up = make_float2(approximate_reciprocal(d.x), approximate_reciprocal(d.y));
  float2 e = make_float2(1.f, 1.f);
#pragma unroll
  for (int i = kTile - 1; i >= 0; --i) {
    x[i].x *= e.x, x[i].y *= e.y;
    e.x *= alpha[i].x, e.y *= alpha[i].y;
    put_word(at_token(shared + kSameKeys + own, channels, i), bf16_pair(x[i].x * up.x, x[i].y * up.y));
  }
  unsigned char* end = shared + kEndKeys + (tile == 0 ? 0 : tile == 1 ? 3 : 5) * kTileBytes + panel * kTilePanel;
  for (int next = tile + 1; next < kTiles; ++next, end += kTileBytes) {
    const float2 middle = next == 1 ? decay[1] : next == 2 ? decay[2] : decay[3];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      put_word(at_token(end, channels, i), bf16_pair(x[i].x, x[i].y));
      x[i].x *= middle.x, x[i].y *= middle.y;
    }
  }
#pragma unroll
  for (int i = 0; i < kTile; ++i)
    put_word(at_token(block + kRestoredKeys + own, channels, i), bf16_pair(x[i].x, x[i].y));
}

}  // namespace k3::cuda::kda::prefill_detail::factors
