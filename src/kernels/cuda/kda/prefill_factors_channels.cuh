// The elementwise part of the factor kernel (prefill_factors.cu). A warp owns 16 channels of all 64 tokens, in the
// places of tensor core sums. X(h, i) is the matrix of the tokens 32 h + 4 n + i, n = 0 to 7, and 8 channels; tile i,
// 0 to 3, has the rows of X(0, i) and X(1, i): of a piece of 8 channels, lane l has tokens 4 (l / 4) + i and 32 more,
// channels 2 (l % 4) and the next. Over all tiles a lane has four tokens in a row, twice.
//   convolution  x[t] . taps, a tensor core product: X(., i - 3), X(., i - 1) times [diag(tap 0); diag(tap 2)] and
//                X(., i - 2), X(., i) times [diag(tap 1); diag(tap 3)]; taps in two bf16 terms (2^-14 of one lost)
//   |q|^2, |k|^2 squares times columns of ones, |k|^2 with the rest of its squares
//   gates        H, sums of g = log2 alpha along 16 tokens in fp32: four in a lane, the rest of four lanes
// 16 tokens have one reference; the end of a half's first 16 is that of its operands:
//   a half's first 16     H = -(sum of g behind the token):  rows q 2^H, k 2^H (factors <= 2^108.3), same k 2^-H (<= 1)
//   its second 16         H = sum of g up to the token:      rows q 2^H, k 2^H (<= 1), same k 2^-H (<= 2^115.4)
//   the first half        end k: k decayed to the reference of the second half (<= 1)
#pragma once

#include "kernels/cuda/common/fragments.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/kda/prefill_factors_work.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

inline constexpr float kLog2E = 1.4426950408889634f;

// A lane's part of its warp's 16 channels.
struct Place {
  int warp, lane, row, channel;  // row: of both matrices of a tile; of a piece: the first of two channels
  __device__ __forceinline__ explicit Place(unsigned thread)
      : warp(static_cast<int>(thread / 32)), lane(static_cast<int>(thread % 32)), row(lane / 4),
        channel(2 * (lane % 4)) {}
  // Of the 16-byte row that the lane gives when piece 0 of tiles 0 and 1 of an operand [64][128] is stored as four
  // matrices; of piece p of tiles 2 i and 2 i + 1: pairs() ^ 16 * p ^ 2 * i * kExchange.
  __device__ __forceinline__ int pairs() const {
    return warp / 4 * kPanel + (panel_offset(lane / 8 % 2 * 32 + exchanged(lane % 8 * 4), warp % 4 * 32) ^
                                lane / 16 * kExchange);
  }
  // Of the 16-byte row that the lane gives when tile 0 of an operand [64][128] is stored as four matrices; tile i lies
  // at matrices() ^ i * kExchange.
  __device__ __forceinline__ int matrices() const {
    return warp / 4 * kPanel +
           panel_offset(lane / 8 % 2 * 32 + exchanged(lane % 8 * 4), warp % 4 * 32 + lane / 16 * 16);
  }
};
using TileWords = uint32_t[2][2];  // bf16 pairs of channels, [piece][half]

// ---- convolution
// Half of the taps of 8 channels as right operands, cut into two bf16 terms: [term][tap].
struct TapOperands {
  uint32_t words[2][kTaps];
  __device__ __forceinline__ TapOperands(const unsigned char* taps, int lane) {
    const int channel = lane / 4;  // the column; rows 2 (lane % 4) and the next
    const uint32_t upper_half = lane % 4 != channel / 2 ? 0x4444u : channel % 2 ? 0x3244u : 0x4432u;
    const float4 four = *reinterpret_cast<const float4*>(taps + channel * kTaps * 4);
    const float tap[kTaps] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      const float x = 0.5f * tap[i], rest = x - from_bits(bits_of(x) & 0xffff0000u);
      words[0][i] = permute_bytes(bits_of(x), 0, upper_half);
      words[1][i] = permute_bytes(bits_of(rest), 0, upper_half);
    }
  }
};
using TilePair = uint32_t[2][2];  // bf16 pairs of a piece's channels, [tile % 2][half]
// Convolution and SiLU of the warp's channels: put(piece, pair of tiles, words). At raw + kFurther: the two panels of
// kRawRows raw rows, where X(h, i) starts at row kRawPitch i + 8 h + 1 and X(h, -i) at kRawPitch (4 - i) + 8 h.
template <int kFurther = 0, class Put>
__device__ __forceinline__ void convolve(const Place& at, const unsigned char* taps, uint32_t raw, Put put) {
  static_assert(kFurther % 128 == 0);
  // A left operand is X(0, m), X(1, m), X(0, m + 2), X(1, m + 2), m = -3 to 1. Of it the lane gives row own + kRawPitch
  // m, and kRawRows - 1 more where its matrix is X(., -i).
  const uint32_t later = at.lane / 16, own = at.warp / 4 * kRawRows + 2 * kRawPitch * later + at.lane % 16 + 1,
                 wrapped = own + (later ? 0 : kRawRows - 1);
  const auto place = [&](uint32_t row) { return raw + row * 128 + ((row ^ at.warp % 4 * 2) & 7) * 16; };
  const uint32_t address[4] = {place(own), place(wrapped - kRawPitch), place(wrapped - 2 * kRawPitch), place(own + 1)};
  const auto left = [&](int m, int piece) {  // -3 is 16 rows behind 0, and 1 behind own + 1: the same swizzle
    return (address[m == 1 ? 3 : m % 3 == 0 ? 0 : -m] ^ 16 * piece) + (m == 1 || m == -3 ? 16 * 128 : 0) + kFurther;
  };
  uint32_t x[kTiles + 1][4];  // [m + 3], of a piece
  const auto multiply = [&](const TapOperands& operands, int piece, int pair, float (&sum)[2][4]) {
#pragma unroll
    for (int m = pair == 0 ? -3 : 0; m <= 2 * pair - 1; ++m) load_matrices(x[m + 3], left(m, piece));
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[e / 4][e % 4] = 0.f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // the rest first
      const int tile = i % 2, odd = i / 2 % 2;
      const uint32_t* word = operands.words[1 - i / 4] + odd;
      tensor_core_bf16(sum[tile], x[2 * pair + tile + odd], {word[0], word[2]});
    }
  };
  float sums[2][2][4];  // the products of two tiles run under the SiLU of the two before
  taps += 16 * at.warp * kTaps * 4;
  const TapOperands first(taps, at.lane), second(taps + 8 * kTaps * 4, at.lane);
  multiply(first, 0, 0, sums[0]);
#pragma unroll
  for (int unit = 0; unit < 4; ++unit) {
    if (unit < 3) multiply(unit == 0 ? first : second, (unit + 1) / 2, (unit + 1) % 2, sums[(unit + 1) % 2]);
    const float(&sum)[2][4] = sums[unit % 2];
    TilePair out;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out[i / 2][i % 2] = bf16_pair(silu_of_half(sum[i / 2][i % 2 * 2]), silu_of_half(sum[i / 2][i % 2 * 2 + 1]));
    put(unit / 2, unit % 2, out);
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
// l % 4 at its two tokens, as (k, q, k 32 tokens on, q 32 tokens on).
template <bool kKeys>
__device__ __forceinline__ void add_squares(float (&sums)[4], int tile, const TileWords& x) {
  const uint32_t ones = Place(own_thread()).row == 2 * tile + (kKeys ? 0 : 1) ? 0x3f803f80u : 0u;
  const uint32_t y[4] = {square(x[0][0]), square(x[0][1]), square(x[1][0]), square(x[1][1])};
  tensor_core_bf16(sums, y, {ones, ones});
  if constexpr (kKeys)
    tensor_core_bf16(sums, {square_rest(x[0][0], y[0]), square_rest(x[0][1], y[1]), square_rest(x[1][0], y[2]),
                            square_rest(x[1][1], y[3])},
                     {ones, ones});
}
// (|k|^-1, |q|^-1 dim^-1/2) of eight tokens, the warp's rows of half a tile, to kLengths, zeros behind the last token;
// four lanes a token add the sums of two warps each.
__device__ __forceinline__ void put_lengths(int count) {
  const Place at(own_thread());
  const int tile = at.warp / 2, half = at.warp % 2, token = 32 * half + 4 * at.row + tile;
  const float2* sums = reinterpret_cast<const float2*>(own_shared() + kSquares) + at.lane % 4 * 2 * kSquaresPitch +
                       tile * kSquaresTile + half * 8 + at.row;
  float2 sum = make_float2(sums[0].x + sums[kSquaresPitch].x, sums[0].y + sums[kSquaresPitch].y);
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) sum.x += shuffle_xor(sum.x, step), sum.y += shuffle_xor(sum.y, step);
  const float2 length = make_float2(approximate_inverse_sqrt(sum.x + 1e-6f),
                                    0.08838834764831845f * approximate_inverse_sqrt(sum.y + 1e-6f));
  if (at.lane % 4 == 0)
    reinterpret_cast<float2*>(own_shared() + kLengths)[8 * at.warp + at.row] =
        token < count ? length : make_float2(0.f, 0.f);
}

// ---- gates
struct GateSums {
  float H[kTiles][2][4];  // [tile][piece][half, channel]
  float2 total;           // of two channels over 16 tokens: half row % 2, its 16 number row / 4, piece row / 2 % 2
};

// logits: the two panels of raw rows; bias of all channels.
__device__ __forceinline__ void sum_gates(GateSums& sums, uint32_t logits, const float* bias, float speed, float bound,
                                          int count) {
  const Place at(own_thread());
  const float slope = -kLog2E * speed, inverse_bound = approximate_reciprocal(kLog2E * bound);
  const uint32_t row = logits + at.warp / 4 * kPanel + at.lane % 16 * 128,
                 address = row + swizzled_piece(row, at.warp % 4 * 2 + at.lane / 16);
  uint32_t words[kTiles][4];  // [tile][piece, half]
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) load_matrices(words[tile], address + tile * kGroups * 128);
  float2 shift[2];
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    shift[piece] = *reinterpret_cast<const float2*>(bias + 16 * at.warp + 8 * piece + at.channel);
    shift[piece].x *= slope, shift[piece].y *= slope;
  }
  const auto gate = [&](float logit, float shift) {  // bound / (1 + e^-x)
    return approximate_reciprocal(fmaf(inverse_bound, fast_exp2(fmaf(slope, logit, shift)), inverse_bound));
  };
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 logit = both(words[tile][i]);
      float* g = sums.H[tile][i / 2] + i % 2 * 2;
      g[0] = gate(logit.x, shift[i / 2].x), g[1] = gate(logit.y, shift[i / 2].y);
    }
  if (count < kChunk) {
#pragma unroll
    for (int i = 0; i < 8 * kTiles; ++i)
      if (32 * (i / 2 % 2) + 4 * at.row + i / 8 >= count) sums.H[i / 8][i / 4 % 2][i % 4] = 0.f;
  }
  // Four lanes share 16 tokens. A lane's first H is its first g and what the other lanes have before it, less the sum
  // of all in a half's first 16.
  const float all = at.row < 4 ? -1.f : 0.f, odd = at.row % 2 ? all + 1.f : all, upper = at.row & 2 ? all + 1.f : all;
  float totals[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {  // piece, half, channel
    const auto H = [&](int tile) -> float& { return sums.H[tile][i / 4][i % 4]; };
    H(1) += H(0), H(2) += H(1), H(3) += H(2);
    const float own = H(3), other = shuffle_xor(own, 4), pair = own + other, others = shuffle_xor(pair, 8),
                start = fmaf(odd, other, fmaf(upper, others, all * own));
    totals[i] = pair + others;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) H(tile) += start;
  }
  const int first = at.row % 4;
  const auto pick = [&](int channel) {
    const float low = first & 1 ? totals[2 + channel] : totals[channel],
                high = first & 1 ? totals[6 + channel] : totals[4 + channel];
    return first & 2 ? high : low;
  };
  sums.total = make_float2(pick(0), pick(1));
}
// The decay of every 16 tokens and channel of the warp, to kTileDecay.
__device__ __forceinline__ void put_tile_decays(const GateSums& sums) {
  const Place at(own_thread());
  float* decays = reinterpret_cast<float*>(own_shared() + kTileDecay);
  *reinterpret_cast<float2*>(decays + (at.row % 2 * 2 + at.row / 4) * kDecayPitch + 16 * at.warp +
                             at.row / 2 % 2 * 8 + at.channel) =
      make_float2(fast_exp2(sums.total.x), fast_exp2(sums.total.y));
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
  TileWords rows_q, rows_k, same, queries, restored;
};
// decay: of every 16 tokens, for this piece; end: of the first half, of this piece.
__device__ __forceinline__ void make_operands(TileOperands& out, uint32_t& end, int piece, const TileWords& q,
                                              const TileWords& k, const float (&H)[4], const float2 (&length)[2],
                                              const float2 (&decay)[kTiles]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 before = half == 0 ? decay[0] : times(times(decay[0], decay[1]), decay[2]);
    const float h0 = H[2 * half], h1 = H[2 * half + 1];
    const float2 up = make_float2(fast_exp2(h0), fast_exp2(h1)), down = make_float2(fast_exp2(-h0), fast_exp2(-h1));
    const float2 row = times(both(q[piece][half]), times(up, length[half].y)),
                 x = times(both(k[piece][half]), length[half].x);
    float2 key = times(x, down);
    out.rows_q[piece][half] = rounded(row);
    out.rows_k[piece][half] = rounded(times(x, up));
    out.queries[piece][half] = rounded(times(row, before));
    out.same[piece][half] = rounded(key);
    if (half == 0) {  // one by one: 2^-H may be large where the first decay is tiny
      key = times(times(key, decay[1]), decay[2]);
      end = rounded(key);
    }
    out.restored[piece][half] = rounded(times(key, decay[3]));
  }
}
// The operands of the warp's channels.
__device__ __forceinline__ void put_operands(const TileWords (&q)[kTiles], const TileWords (&k)[kTiles],
                                             const GateSums& sums) {
  const Place at(own_thread());
  const float* decays = reinterpret_cast<const float*>(own_shared() + kTileDecay) + 16 * at.warp + at.channel;
  const float2* lengths = reinterpret_cast<const float2*>(own_shared() + kLengths) + at.row;
  float2 decay[2][kTiles];
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i)
    decay[i % 2][i / 2] = *reinterpret_cast<const float2*>(decays + i / 2 * kDecayPitch + i % 2 * 8);
  // Matrices of the second half for lanes whose `half` is set, or, of the end k, of the second of two tiles.
  const uint32_t half = at.lane / 8 % 2, operand = shared_address(own_shared()) + at.matrices(),
                 same = operand + (half ? kLowerKeys : kFirstKeys - at.warp / 4 * (kPanel - kTileBytes)),
                 ends = (operand - half * 32 * 128) ^ half * kExchange;
  TileWords end;  // [piece][tile % 2]
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float2 length[2] = {lengths[tile * kTile], lengths[tile * kTile + 8]};
    TileOperands out;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
      make_operands(out, end[piece][tile % 2], piece, q[tile], k[tile], sums.H[tile][piece], length, decay[piece]);
    const uint32_t to = operand ^ tile * kExchange;
    store_tile(to + kRestoredOut, out.restored);
    store_tile(to + kQueriesOut, out.queries);
    store_tile(to + kRowsQ, out.rows_q);
    store_tile(to + kRowsK, out.rows_k);
    store_tile(same ^ tile * kExchange, out.same);
    if (tile % 2) store_tile((ends ^ tile / 2 * 2 * kExchange) + kLowerKeys, end);
  }
}

}  // namespace k3::cuda::kda::prefill_detail::factors
