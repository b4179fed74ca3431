// The elementwise part of the factor kernel (prefill_factors.cu). A thread owns two channels of one tile of 16 tokens
// and walks along the tokens: convolution, SiLU and gates need no exchange, decays are running products.
// alpha = e^g. Two tiles make a half of the chunk, whose middle is the reference of its operands. With
// D_i = alpha_0 ... alpha_i inside the thread's tile, E_i = alpha_(i+1) ... alpha_15 and the tile's decay d = D_15:
//   a half's first tile     rows q D / d, rows k D / d (factors <= 2^115.4), same k E (<= 1)
//   its second tile         rows q D, rows k D (<= 1), same k E / d (<= 2^115.4)
//   the first half          end k: k decayed to the middle of the second half (<= 1)
#pragma once

#include "kernels/cuda/kda/prefill_factors_work.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ uint32_t word_at(const unsigned char* p) { return *reinterpret_cast<const uint32_t*>(p); }

// x sigmoid(x), from kSlope x: kSlope x / (kSlope (1 + e^-x)).
inline constexpr float kSlope = -kLog2E;
__device__ __forceinline__ float silu(float x) {
  return x * approximate_reciprocal(fmaf(kSlope, fast_exp2(x), kSlope));
}

// Convolution and SiLU of kTile tokens; raw: the pair of channels three tokens before the first.
__device__ __forceinline__ void convolve(uint32_t (&out)[kTile], const unsigned char* taps, const unsigned char* raw) {
  float4 first = *reinterpret_cast<const float4*>(taps), second = *reinterpret_cast<const float4*>(taps + 16);
  first.x *= kSlope, first.y *= kSlope, first.z *= kSlope, first.w *= kSlope;
  second.x *= kSlope, second.y *= kSlope, second.z *= kSlope, second.w *= kSlope;
  const auto token = [&](int i) { return both(word_at(raw + i * kRowBytes)); };
  float2 x0 = token(0), x1 = token(1), x2 = token(2);
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float2 x3 = token(i + 3);
    const float left = silu(first.x * x0.x + first.y * x1.x + first.z * x2.x + first.w * x3.x);
    const float right = silu(second.x * x0.y + second.y * x1.y + second.z * x2.y + second.w * x3.y);
    out[i] = bf16_pair(left, right);
    x0 = x1, x1 = x2, x2 = x3;
  }
}

// x^2 of both channels, rounded, and what the rounding lost.
__device__ __forceinline__ uint32_t square(uint32_t x) {
#ifdef K3_CUDA_EMULATOR
  return bf16_pair(both(x).x * both(x).x, both(x).y * both(x).y);
#else
  uint32_t y;
  asm("mul.rn.bf16x2 %0, %1, %1;" : "=r"(y) : "r"(x));
  return y;
#endif
}
__device__ __forceinline__ uint32_t square_rest(uint32_t x, uint32_t square) {
#ifdef K3_CUDA_EMULATOR
  return bf16_pair(both(x).x * both(x).x - both(square).x, both(x).y * both(x).y - both(square).y);
#else
  uint32_t y;
  asm("{\n.reg .b32 less;\nneg.bf16x2 less, %2;\nfma.rn.bf16x2 %0, %1, %1, less;\n}" : "=r"(y) : "r"(x), "r"(square));
  return y;
#endif
}
// |q|^2 and |k|^2 of eight tokens over the warp's 64 channels: products with matrices that have a column of ones at the
// token add groups of eight channels, |k|^2 with the rest of its squares. Lane l ends with token 2 (l % 4) + l / 4 % 2,
// of k where l / 8 % 2 = 0 and of q where it is 1.
__device__ __forceinline__ float sum_squares(const uint32_t* q, const uint32_t* k, int lane) {
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t ones = lane / 4 == i ? 0x3f803f80u : 0u, y = square(k[i]);
    tensor_core_bf16(sum, {y, square(q[i]), square_rest(k[i], y), 0}, {ones, ones});
  }
  const bool odd = lane & 4, queries = lane & 8;
  const auto fold = [](float left, float right, bool upper, int step) {
    return (upper ? right : left) + shuffle_xor(upper ? left : right, step);
  };
  const float x = fold(fold(sum[0], sum[1], odd, 4), fold(sum[2], sum[3], odd, 4), queries, 8);
  return x + shuffle_xor(x, 16);
}

// alpha of kTile tokens; z(i) is the pair of decay logits. Returns their product.
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

// Token i of the thread's, whose channels lie at `place` for its first: of an operand in shared memory, and in memory.
// Both start at multiples of 128 bytes, so that the 128-byte swizzle is one exclusive or.
__device__ __forceinline__ void put_token(uint32_t place, int i, uint32_t word) {
  store_shared((place ^ ((i & 7) << 4)) + i * 128, word);
}
__device__ __forceinline__ void put_token(unsigned char* place, int i, uint32_t word) {
  store_global((reinterpret_cast<std::uintptr_t>(place) ^ ((i & 7) << 4)) + i * 128, word);
}

__device__ __forceinline__ float2 times(float2 x, float2 y) { return make_float2(x.x * y.x, x.y * y.y); }

// Writes the operands of the thread's channels and tile; Qd and Kb go to memory. kLengths holds (|q|^-1 dim^-1/2,
// |k|^-1) of the warp's tokens.
__device__ __forceinline__ void put_operands(unsigned char* block, const uint32_t (&q)[kTile],
                                             const uint32_t (&k)[kTile], const float2 (&alpha)[kTile]) {
  const auto tile_decay = [](int tile) {
    const unsigned char* decays = own_shared() + kTileDecay + Place(own_thread()).channel * 4;
    return *reinterpret_cast<const float2*>(decays + tile * kDim * 4);
  };
  const float2 one = make_float2(1.f, 1.f);
  float2 x[kTile], up;
  {
    const Place at(own_thread());
    const uint32_t rows = shared_address(own_shared()) + at.operand() + at.byte();
    unsigned char* queries = block + kDecayedQueries + at.operand() + at.byte();
    const float2* lengths = reinterpret_cast<const float2*>(own_shared() + kLengths) + at.warp * kTile;
    const float2 whole = tile_decay(at.tile);
    up = make_float2(approximate_reciprocal(whole.x), approximate_reciprocal(whole.y));
    float2 before = tile_decay(0), d = at.tile % 2 ? one : up;
    if (at.tile >= 2) before = times(before, times(tile_decay(1), tile_decay(2)));
    float2 length_of[8];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      if (i % 8 == 0) {
#pragma unroll
        for (int ahead = 0; ahead < 8; ++ahead) length_of[ahead] = lengths[i + ahead];
      }
      const float2 length = length_of[i % 8];
      d = times(d, alpha[i]);
      const float2 qx = both(q[i]), kx = both(k[i]);
      const float2 row = make_float2(qx.x * (length.x * d.x), qx.y * (length.x * d.y));
      x[i] = make_float2(kx.x * length.y, kx.y * length.y);
      put_token(rows + kRowsQ, i, bf16_pair(row.x, row.y));
      put_token(rows + kRowsK, i, bf16_pair(x[i].x * d.x, x[i].y * d.y));
      put_token(queries, i, bf16_pair(row.x * before.x, row.y * before.y));
    }
  }
  const Place at(own_thread());
  const uint32_t shared = shared_address(own_shared()), same = shared + kSameKeys + at.operand() + at.byte();
  float2 e = one;
  const auto backwards = [&](auto put) {
#pragma unroll
    for (int i = kTile - 1; i >= 0; --i) {
      x[i] = times(x[i], e), e = times(e, alpha[i]);
      put_token(same, i, put(x[i]));
    }
  };
  if (at.tile % 2) backwards([&](float2 k) { return bf16_pair(k.x * up.x, k.y * up.y); });
  else backwards([](float2 k) { return bf16_pair(k.x, k.y); });
  if (at.tile < 2) {
    const uint32_t end = shared + kEndKeys + at.channel / 64 * kTileBytes + at.tile * kTilePanel + at.byte();
    const float2 middle = at.tile ? tile_decay(2) : times(tile_decay(1), tile_decay(2));
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      x[i] = times(x[i], middle);
      put_token(end, i, bf16_pair(x[i].x, x[i].y));
    }
  }
  const float2 rest = at.tile < 3 ? tile_decay(3) : one;
  unsigned char* restored = block + kRestoredKeys + at.operand() + at.byte();
#pragma unroll
  for (int i = 0; i < kTile; ++i) put_token(restored, i, bf16_pair(x[i].x * rest.x, x[i].y * rest.y));
}

}  // namespace k3::cuda::kda::prefill_detail::factors
