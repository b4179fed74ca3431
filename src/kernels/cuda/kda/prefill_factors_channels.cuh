// The elementwise part of the factor kernel (prefill_factors.cu). A warp owns 16 channels of all 64 tokens, in the
// places of tensor core sums: of a tile of 16 tokens and a piece of 8 channels, lane l has tokens l / 4 and l / 4 + 8,
// channels 2 (l % 4) and the next. Sums along tokens are tensor core products as well:
//   convolution  x[t] . taps: the rows of raw tokens t - 3 + {0, 1} and {2, 3}, as ldmatrix finds them, times
//                [diag(tap 0); diag(tap 1)] and [diag(tap 2); diag(tap 3)]; taps in two bf16 terms (2^-14 of one lost)
//   |q|^2, |k|^2 squares times columns of ones, |k|^2 with the rest of its squares
//   gates        H, sums of g = log2 alpha inside a tile: g in two fp16 terms times triangles of ones
// Two tiles make a half of the chunk; the end of its first tile is the reference of its operands:
//   a half's first tile   H = -(sum of g behind the token):  rows q 2^H, k 2^H (factors <= 2^108.3), same k 2^-H (<= 1)
//   its second tile       H = sum of g up to the token:      rows q 2^H, k 2^H (<= 1), same k 2^-H (<= 2^115.4)
//   the first half        end k: k decayed to the reference of the second half (<= 1)
#pragma once

#include "kernels/cuda/common/fragments.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/kda/prefill_factors_work.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

inline constexpr float kLog2E = 1.4426950408889634f;

// A lane's part of its warp's 16 channels.
struct Place {
  int warp, lane, token, channel;  // of a tile: the first of two tokens, 8 apart; of a piece: the first of two channels
  __device__ __forceinline__ explicit Place(unsigned thread)
      : warp(static_cast<int>(thread / 32)), lane(static_cast<int>(thread % 32)), token(lane / 4),
        channel(2 * (lane % 4)) {}
  // Of the 16-byte row that the lane gives when a tile [16][16] of an operand [.][128] of two panels is loaded or
  // stored as four matrices; panel_bytes: from one panel to the other.
  __device__ __forceinline__ int matrices(int panel_bytes) const {
    return warp / 4 * panel_bytes + panel_offset(lane % 16, warp % 4 * 32 + lane / 16 * 16);
  }
};
using TileWords = uint32_t[2][2];  // bf16 pairs of channels, [piece][token, 8 tokens on]

// ---- convolution
// Half of the taps of the warp's channels as right operands, cut into two bf16 terms: [term][piece][tap].
struct TapOperands {
  uint32_t words[2][2][kTaps];
  __device__ __forceinline__ TapOperands(const unsigned char* taps, int lane) {
    const int channel = lane / 4;  // the column; rows 2 (lane % 4) and the next
    const uint32_t upper_half = lane % 4 != channel / 2 ? 0x4444u : channel % 2 ? 0x3244u : 0x4432u;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const float4 four = *reinterpret_cast<const float4*>(taps + (8 * piece + channel) * kTaps * 4);
      const float tap[kTaps] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < kTaps; ++i) {
        const float x = 0.5f * tap[i], rest = x - from_bits(bits_of(x) & 0xffff0000u);
        words[0][piece][i] = permute_bytes(bits_of(x), 0, upper_half);
        words[1][piece][i] = permute_bytes(bits_of(rest), 0, upper_half);
      }
    }
  }
};
// Convolution and SiLU of the warp's channels: put(tile, words). raw: the two panels of kRawRows raw rows.
template <class Put>
__device__ __forceinline__ void convolve(const unsigned char* taps, uint32_t raw, Put put) {
  const Place at(own_thread());
  const TapOperands operands(taps + 16 * at.warp * kTaps * 4, at.lane);
  uint32_t address[2][2];  // [piece][taps 0, 1 or 2, 3]
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const uint32_t row = raw + at.warp / 4 * kRawPanel + (at.lane % 16 + at.lane / 16 + 2 * pair) * 128;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) address[piece][pair] = row + swizzled_piece(row, at.warp % 4 * 2 + piece);
  }
  const auto multiply = [&](int tile, float (&sum)[2][4]) {
    uint32_t x[2][2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) load_matrices(x[i % 2][i / 2], address[i % 2][i / 2] + tile * kTilePanel);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[e / 4][e % 4] = 0.f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // the rest first
      const int piece = i % 2, pair = i / 2 % 2;
      const uint32_t* word = operands.words[1 - i / 4][piece] + 2 * pair;
      tensor_core_bf16(sum[piece], x[piece][pair], {word[0], word[1]});
    }
  };
  float sums[2][2][4];  // a tile's products run under the SiLU of the tile before
  multiply(0, sums[0]);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile + 1 < kTiles) multiply(tile + 1, sums[(tile + 1) % 2]);
    const float(&sum)[2][4] = sums[tile % 2];
    TileWords out;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out[i / 2][i % 2] = bf16_pair(silu_of_half(sum[i / 2][i % 2 * 2]), silu_of_half(sum[i / 2][i % 2 * 2 + 1]));
    put(tile, out);
  }
}

// ---- sums of squares
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
// Adds a tile's squares to sums whose column 2 tile is |k|^2 and 2 tile + 1 is |q|^2: lane l ends with those of tile
// l % 4 at its two tokens, as (k, q, k 8 tokens on, q 8 tokens on).
template <bool kKeys>
__device__ __forceinline__ void add_squares(float (&sums)[4], int tile, const TileWords& x) {
  const uint32_t ones = Place(own_thread()).token == 2 * tile + (kKeys ? 0 : 1) ? 0x3f803f80u : 0u;
  const uint32_t y[4] = {square(x[0][0]), square(x[0][1]), square(x[1][0]), square(x[1][1])};
  tensor_core_bf16(sums, y, {ones, ones});
  if constexpr (kKeys)
    tensor_core_bf16(sums, {square_rest(x[0][0], y[0]), square_rest(x[0][1], y[1]), square_rest(x[1][0], y[2]),
                            square_rest(x[1][1], y[3])},
                     {ones, ones});
}
// (|k|^-1, |q|^-1 dim^-1/2) of the warp's eight tokens to kLengths, zeros behind the last token; four lanes a token add
// the sums of two warps each.
__device__ __forceinline__ void put_lengths(int count) {
  const Place at(own_thread());
  const int token = 8 * at.warp + at.token;
  const float2* sums = reinterpret_cast<const float2*>(own_shared() + kSquares) + at.lane % 4 * 2 * kSquaresPitch +
                       token / kTile * kSquaresTile + token % kTile;
  float2 sum = make_float2(sums[0].x + sums[kSquaresPitch].x, sums[0].y + sums[kSquaresPitch].y);
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) sum.x += shuffle_xor(sum.x, step), sum.y += shuffle_xor(sum.y, step);
  const float2 length = make_float2(approximate_inverse_sqrt(sum.x + 1e-6f),
                                    0.08838834764831845f * approximate_inverse_sqrt(sum.y + 1e-6f));
  if (at.lane % 4 == 0)
    reinterpret_cast<float2*>(own_shared() + kLengths)[token] = token < count ? length : make_float2(0.f, 0.f);
}

// ---- gates
// Sums of gates along tokens: kGateScale g in two fp16 terms (a constant gate would add up the rounding of one) as
// right operands, times triangles of 1 / kGateScale. The bound of -5 keeps them below 2^14.9; the scale takes small
// gates off fp16's subnormals.
inline constexpr float kGateScale = 4096.f;
inline constexpr uint32_t kScaledOnes = 0x0c000c00u, kMinusScaledOnes = 0x8c008c00u;  // fp16 pairs of +- 1 / kGateScale
struct GateSums {
  float H[kTiles][2][4];  // [tile][piece][of sums]
  float totals[4];        // of row tile + 4 piece: the tile's sum, of two channels
};

// Adds the gates of 16 tokens and 8 channels: of pairs[i] a lane has tokens 8 i + 2 (lane % 4) and the next, of channel
// lane / 4.
__device__ __forceinline__ void add_gates(GateSums& sums, int tile, int piece, const uint32_t (&pairs)[2], int lane) {
  const int row = lane / 4, column = 2 * (lane % 4);
  const bool second = tile % 2;  // of its half
  const uint32_t ones = second ? kScaledOnes : kMinusScaledOnes, all = row == tile + 4 * piece ? kScaledOnes : 0u;
  // Columns up to the row, or behind it, in the two diagonal quarters.
  const uint32_t up_to = column + 1 <= row ? 0xffffffffu : column == row ? 0xffffu : 0u;
  const uint32_t triangle = ones & (second ? up_to : ~up_to);
  tensor_core_half(sums.H[tile][piece], {triangle, second ? ones : 0u, second ? 0u : ones, triangle}, pairs[0],
                   pairs[1]);
  tensor_core_half(sums.totals, {all, 0, all, 0}, pairs[0], pairs[1]);
}
// logits: the two panels of raw rows; bias of all channels.
__device__ __forceinline__ void sum_gates(GateSums& sums, uint32_t logits, const float* bias, float speed, float bound,
                                          int count) {
  const Place at(own_thread());
  const float slope = -kLog2E * speed, inverse_bound = approximate_reciprocal(kGateScale * kLog2E * bound);
  const uint32_t row = logits + at.warp / 4 * kPanel + at.lane % 16 * 128,
                 address = row + swizzled_piece(row, at.warp % 4 * 2 + at.lane / 16);
  const float shift[2] = {slope * bias[16 * at.warp + at.token], slope * bias[16 * at.warp + 8 + at.token]};
  uint32_t words[kTiles][4];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) load_transposed(words[tile], address + tile * kTilePanel);
#pragma unroll
  for (int e = 0; e < 4; ++e) sums.totals[e] = 0.f;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const auto gate = [&](float logit) {  // bound / (1 + e^-x)
        return approximate_reciprocal(fmaf(inverse_bound, fast_exp2(fmaf(slope, logit, shift[piece])), inverse_bound));
      };
      uint32_t high[2], rest[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 logit = both(words[tile][2 * piece + i]), g = make_float2(gate(logit.x), gate(logit.y));
        high[i] = half_pair(g.x, g.y);
        const float2 rounded = both_halves(high[i]);
        rest[i] = half_pair(g.x - rounded.x, g.y - rounded.y);
        if (count < kChunk) {
          const int left = count - (tile * kTile + 8 * i + at.channel);  // tokens from the lane's first on
          const uint32_t mask = left <= 0 ? 0u : left == 1 ? 0xffffu : 0xffffffffu;
          high[i] &= mask, rest[i] &= mask;
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) sums.H[tile][piece][e] = 0.f;
      add_gates(sums, tile, piece, rest, at.lane);
      add_gates(sums, tile, piece, high, at.lane);
    }
  }
}
// The decay of every tile and channel of the warp, to kTileDecay.
__device__ __forceinline__ void put_tile_decays(const GateSums& sums) {
  const Place at(own_thread());
  float* decays = reinterpret_cast<float*>(own_shared() + kTileDecay);
  *reinterpret_cast<float2*>(decays + at.token % 4 * kDecayPitch + 16 * at.warp + at.token / 4 * 8 + at.channel) =
      make_float2(fast_exp2(sums.totals[0]), fast_exp2(sums.totals[1]));
}
// The chunk's decay, to the block's part that leaves with A, by the second warpgroup.
__device__ __forceinline__ void put_decay() {
  const int channel = static_cast<int>(own_thread()) - kThreads / 2;
  const float* decays = reinterpret_cast<const float*>(own_shared() + kTileDecay) + channel;
  reinterpret_cast<float*>(own_shared() + kDecayOut)[channel] =
      decays[0] * decays[kDecayPitch] * decays[2 * kDecayPitch] * decays[3 * kDecayPitch];
}

// ---- operands
__device__ __forceinline__ float2 times(float2 x, float2 y) { return make_float2(x.x * y.x, x.y * y.y); }
__device__ __forceinline__ float2 times(float2 x, float y) { return make_float2(x.x * y, x.y * y); }
__device__ __forceinline__ uint32_t rounded(float2 x) { return bf16_pair(x.x, x.y); }
__device__ __forceinline__ void store_tile(uint32_t address, const TileWords& x) {
  store_matrices(address, x[0][0], x[0][1], x[1][0], x[1][1]);
}

// What a tile's elements become.
struct TileOperands {
  TileWords rows_q, rows_k, same, end, queries, restored;
};
// decay: of the tiles, for this piece.
__device__ __forceinline__ void make_operands(TileOperands& out, int tile, int piece, const TileWords& q,
                                              const TileWords& k, const float (&H)[4], const float2 (&length)[2],
                                              const float2 (&decay)[kTiles]) {
  const float2 before = tile < 2 ? decay[0] : times(times(decay[0], decay[1]), decay[2]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float h0 = H[2 * half], h1 = H[2 * half + 1];
    const float2 up = make_float2(fast_exp2(h0), fast_exp2(h1)), down = make_float2(fast_exp2(-h0), fast_exp2(-h1));
    const float2 row = times(both(q[piece][half]), times(up, length[half].y)),
                 x = times(both(k[piece][half]), length[half].x);
    float2 key = times(x, down);
    out.rows_q[piece][half] = rounded(row);
    out.rows_k[piece][half] = rounded(times(x, up));
    out.queries[piece][half] = rounded(times(row, before));
    out.same[piece][half] = rounded(key);
    if (tile == 1) key = times(key, decay[1]);  // first: 2^-H may be large where the decay of the tile is tiny
    if (tile < 2) {
      const float2 middle = tile == 0 ? times(decay[1], decay[2]) : decay[2];
      out.end[piece][half] = rounded(times(key, middle));
      out.restored[piece][half] = rounded(times(key, times(middle, decay[3])));
    } else {
      out.restored[piece][half] = rounded(times(key, decay[3]));
    }
  }
}
// The operands of the warp's channels.
__device__ __forceinline__ void put_operands(const TileWords (&q)[kTiles], const TileWords (&k)[kTiles],
                                             const GateSums& sums) {
  const Place at(own_thread());
  const float* decays = reinterpret_cast<const float*>(own_shared() + kTileDecay) + 16 * at.warp + at.channel;
  const float2* lengths = reinterpret_cast<const float2*>(own_shared() + kLengths) + at.token;
  float2 decay[2][kTiles];
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i)
    decay[i % 2][i / 2] = *reinterpret_cast<const float2*>(decays + i / 2 * kDecayPitch + i % 2 * 8);
  const uint32_t shared = shared_address(own_shared()), operand = shared + at.matrices(kPanel),
                 first = shared + kFirstKeys + at.matrices(kTileBytes);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float2 length[2] = {lengths[tile * kTile], lengths[tile * kTile + 8]};
    TileOperands out;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
      make_operands(out, tile, piece, q[tile], k[tile], sums.H[tile][piece], length, decay[piece]);
    store_tile(operand + kRestoredOut + tile * kTilePanel, out.restored);
    store_tile(operand + kQueriesOut + tile * kTilePanel, out.queries);
    store_tile(operand + kRowsQ + tile * kTilePanel, out.rows_q);
    store_tile(operand + kRowsK + tile * kTilePanel, out.rows_k);
    store_tile((tile < 2 ? first : operand + kLowerKeys) + tile * kTilePanel, out.same);
    if (tile < 2) store_tile(operand + kLowerKeys + tile * kTilePanel, out.end);
  }
}

}  // namespace k3::cuda::kda::prefill_detail::factors
