// Up to 8 drafts of one row and head in chunk form (kernels.md 1.2): the state is read, not changed. With c_t the
// product of the decays up to and including token t, and c_t / c_s never formed as a quotient (products of decays <= 1,
// so any gate g <= 0 is safe), k and q before their norms, u divided by |k|:
//   met[t][k] s = sum_d k_t (c_t / c_s) k_s, s < t;     met[t][q] s = sum_d q_t (c_t / c_s) k_s, s <= t
//   u_t = beta_t / |k_t| (v_t - ((c_t k_t)^T S + sum_s met[t][k] s u_s) / |k_t|)
//   o_t = ((c_t q_t)^T S + sum_s met[t][q] s u_s) / |q_t| / sqrt(dim)
// The products with S are one 16 x dim x dim matrix product a head on the tensor cores: rows 0 .. 7 the keys, 8 .. 15
// the queries. Both operands are split in two terms, of bf16 for bf16 models (relative error about 2^-17 of the sum of
// magnitudes), of tf32 for fp32 ones (2^-21), and three products kept.
#pragma once

#include "kernels/cuda/kda/step_row.cuh"

namespace k3::cuda::kda::step_detail {

// A number as two tf32 terms; the tensor core ignores the low 13 bits of the second.
struct Split {
  uint32_t high, low;
  __device__ __forceinline__ explicit Split(float x) {
    high = bits_of(x) & 0xffffe000u;
    low = bits_of(x - from_bits(high));
  }
};

// A warp = one draft: its products with the earlier ones, its decayed key and query.
template <int kDim, class S>
__device__ __forceinline__ void meet_drafts(S& s, const Map<kDim>& map, int from, int count) {
  constexpr int kLane = Map<kDim>::kLane;
  for (int t = map.warp; t < count; t += Map<kDim>::kWarps) {
    float q_t[kLane], k_t[kLane], run[kLane], sums[16] = {};  // sums[b]: with token t - b; k in front, q behind
    const int channel = kLane * map.lane;
    load_lane(q_t, s.q(from + t) + channel), load_lane(k_t, s.k(from + t) + channel);
#pragma unroll
    for (int i = 0; i < kLane; ++i) run[i] = 1.f;
#pragma unroll
    for (int back = 0; back < kChunk; ++back) {  // beyond the first draft: sums that nobody reads, decay 1
      const int e = from + max(0, t - back);
      float k_s[kLane], decay[kLane];
      load_lane(k_s, s.k(e) + channel), load_lane(decay, s.decay(e) + channel);
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        k_s[i] *= run[i];
        sums[back] = fmaf(k_t[i], k_s[i], sums[back]), sums[8 + back] = fmaf(q_t[i], k_s[i], sums[8 + back]);
        run[i] *= back <= t ? decay[i] : 1.f;
      }
    }
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      s.decayed[0][t][channel + i] = k_t[i] * run[i];
      s.decayed[1][t][channel + i] = q_t[i] * run[i];
    }
    // Over the warp: lane l ends with sums[l / 2].
    const auto fold = [&](int width) {
      const bool upper = map.lane & 2 * width;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float kept = upper ? sums[i + width] : sums[i], sent = upper ? sums[i] : sums[i + width];
        sums[i] = kept + shuffle_xor(sent, 2 * width);
      }
    };
    fold(8), fold(4), fold(2), fold(1);
    sums[0] += shuffle_xor(sums[0], 1);
    const int which = map.lane / 16, back = map.lane / 2 % 8;
    if (map.lane % 2 == 0 && back <= t) s.met[t][which][t - back] = sums[0];
  }
}

// Two neighbouring keys as two bf16 terms each.
struct SplitPair {
  uint32_t high, low;
  __device__ __forceinline__ SplitPair(float x, float y) {
    high = bf16_pair(x, y);
    const float2 rounded = both(high);
    low = bf16_pair(x - rounded.x, y - rounded.y);
  }
};

// Tile map: both products with the state over this half of the keys. Lane l of a product holds rows l / 4 (+ 8) and
// the values of column l / 4: the tile's four columns are four products. The keys of a product are a lane's next ones,
// times the four lanes that share columns: their order does not matter.
template <int kDim, class S>
__device__ __forceinline__ void meet_state(S& s, const Map<kDim>& map, const Tile<kDim>& tile) {
  float sums[4][4] = {};
  const int row = map.lane / 4;
#pragma unroll
  for (int part = 0; part < Map<kDim>::kKeys / 4; ++part) {
    float k[4], q[4];
    const int key = map.key(4 * part);
    load_lane(k, &s.decayed[0][row][key]), load_lane(q, &s.decayed[1][row][key]);
    const float4* x = tile.x + 4 * part;
    const float values[4][4] = {{x[0].x, x[0].y, x[0].z, x[0].w}, {x[1].x, x[1].y, x[1].z, x[1].w},
                                {x[2].x, x[2].y, x[2].z, x[2].w}, {x[3].x, x[3].y, x[3].z, x[3].w}};
    if constexpr (std::is_same_v<typename S::E, float>) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const Split a[4] = {Split(k[i]), Split(q[i]), Split(k[i + 1]), Split(q[i + 1])};
        const uint32_t high[4] = {a[0].high, a[1].high, a[2].high, a[3].high},
                       low[4] = {a[0].low, a[1].low, a[2].low, a[3].low};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const Split y(values[i][c]), z(values[i + 1][c]);
          tensor_core_tf32(sums[c], low, {y.high, z.high});
          tensor_core_tf32(sums[c], high, {y.low, z.low});
          tensor_core_tf32(sums[c], high, {y.high, z.high});
        }
      }
    } else {
      const SplitPair a[4] = {SplitPair(k[0], k[1]), SplitPair(q[0], q[1]), SplitPair(k[2], k[3]),
                              SplitPair(q[2], q[3])};
      const uint32_t high[4] = {a[0].high, a[1].high, a[2].high, a[3].high},
                     low[4] = {a[0].low, a[1].low, a[2].low, a[3].low};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const SplitPair y(values[0][c], values[1][c]), z(values[2][c], values[3][c]);
        tensor_core_bf16(sums[c], low, {y.high, z.high});
        tensor_core_bf16(sums[c], high, {y.low, z.low});
        tensor_core_bf16(sums[c], high, {y.high, z.high});
      }
    }
  }
  __syncthreads();  // the sums of the last token are read
  // Columns 2 (l % 4) and the next one of each product are value columns 8 (l % 4) + c and 4 more.
  const int column = map.column - 4 * (map.lane / 4) + 8 * (map.lane % 4);
#pragma unroll
  for (int e = 0; e < 4; ++e)
    *reinterpret_cast<float4*>(&s.sums[map.half][e / 2][row][column + 4 * (e % 2)]) =
        make_float4(sums[0][e], sums[1][e], sums[2][e], sums[3][e]);
}

// A thread = one value column (two threads a column share the outputs): the triangular system, then o. They replace the
// sums over the queries: o those of the first half of the keys, u those of the second.
template <int kDim, class S>
__device__ __forceinline__ void solve_drafts(S& s, const Map<kDim>& map, int from) {
  const int column = map.thread % kDim, part = map.thread / kDim;
  float u[kChunk];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {  // behind the last draft: numbers that nobody reads
    float seen = s.sums[0][0][t][column] + s.sums[1][0][t][column];
#pragma unroll
    for (int e = 0; e < t; ++e) seen = fmaf(s.met[t][0][e], u[e], seen);
    const int at = min(from + t, kChunk - 1);
    const float length = s.inverse_length(1, at);
    u[t] = length * s.beta[at] * fmaf(-length, seen, s.v(at)[column]);
    if (t % 2 == part) {
      float o = s.sums[0][1][t][column] + s.sums[1][1][t][column];
#pragma unroll
      for (int e = 0; e <= t; ++e) o = fmaf(s.met[t][1][e], u[e], o);
      s.sums[0][1][t][column] = o, s.sums[1][1][t][column] = u[t];
    }
  }
}

// Before more drafts than fit one chunk: S <- c_n S + sum_t (c_n / c_t k_t) u_t^T, in two parts with a barrier between.
template <int kDim, class S>
__device__ __forceinline__ void restore_keys(S& s, const Map<kDim>& map, int from, int count) {  // over q
  constexpr int kLane = Map<kDim>::kLane;
  for (int t = map.warp; t < count; t += Map<kDim>::kWarps)
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      float k = s.k(from + t)[kLane * map.lane + i];
      for (int e = t + 1; e < count; ++e) k *= s.decay(from + e)[kLane * map.lane + i];
      s.q(from + t)[kLane * map.lane + i] = k;
    }
}
template <int kDim, class S>
__device__ __forceinline__ void absorb_drafts(S& s, const Map<kDim>& map, int from, int count,
                                              Tile<kDim>& tile) {
#pragma unroll
  for (int i = 0; i < Map<kDim>::kKeys; ++i) {
    float decay = 1.f;
    for (int t = 0; t < count; ++t) decay *= s.decay(from + t)[map.key(i)];
    float4& v = tile.x[i];
    v.x *= decay, v.y *= decay, v.z *= decay, v.w *= decay;
  }
  for (int t = 0; t < count; ++t) {
    float u[4];
    load_lane(u, &s.sums[1][1][t][map.column]);
    tile.add(s.q(from + t), map, u);
  }
}

}  // namespace k3::cuda::kda::step_detail
