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

// Two neighbouring keys as two bf16 terms each.
struct SplitPair {
  uint32_t high, low;
  __device__ __forceinline__ SplitPair(float x, float y) {
    high = bf16_pair(x, y);
    const float2 rounded = both(high);
    low = bf16_pair(x - rounded.x, y - rounded.y);
  }
};

// A lane's channels of a draft's decayed k and q, split here for bf16 because every warp reads them in meet_state.
template <int kLane, class S>
__device__ __forceinline__ void store_decayed(S& s, int t, int channel, const float (&k)[kLane],
                                              const float (&q)[kLane]) {
  using E = typename S::E;
  if constexpr (kLane == 4 && sizeof(E) == 2) {
    const SplitPair k0(k[0], k[1]), q0(q[0], q[1]), k1(k[2], k[3]), q1(q[2], q[3]);
    *reinterpret_cast<uint4*>(s.decayed(t) + 2 * channel) = make_uint4(k0.high, q0.high, k1.high, q1.high);
    *reinterpret_cast<uint4*>(s.decayed(t, 1) + 2 * channel) = make_uint4(k0.low, q0.low, k1.low, q1.low);
  } else {
    const auto put = [&](int key, int which, float x) {
      const int place = 8 * (key / 4) + 4 * (key / 2 % 2) + 2 * which + key % 2;
      store1(s.decayed(t) + place, x);
      if constexpr (sizeof(E) == 2) store1(s.decayed(t, 1) + place, x - round_to<E>(x));
    };
#pragma unroll
    for (int i = 0; i < kLane; ++i) put(channel + i, 0, k[i]), put(channel + i, 1, q[i]);
  }
}

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
      load_lane(k_s, s.k(e) + channel), load_lane(decay, (back <= t ? s.decay(e) : s.ones) + channel);
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        k_s[i] *= run[i];
        sums[back] = fmaf(k_t[i], k_s[i], sums[back]), sums[8 + back] = fmaf(q_t[i], k_s[i], sums[8 + back]);
        run[i] *= decay[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kLane; ++i) k_t[i] *= run[i], q_t[i] *= run[i];
    store_decayed(s, t, channel, k_t, q_t);
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
    if (map.lane % 2 == 0) s.met[t][which][back <= t ? t - back : back] = back <= t ? sums[0] : 0.f;
    if (map.lane == 0) {
      const float length = s.inverse_length(1, from + t);
      s.scales[t] = make_float2(length, length * s.beta[from + t]);
    }
  }
}

template <class Terms>
struct Operands {
  Terms x, y;
};
// sums[c] += a y[c], three products of the terms each. Products that follow each other belong to different sums.
template <class Terms, class Product>
__device__ __forceinline__ void multiply_split(float (&sums)[4][4], const uint32_t (&high)[4], const uint32_t (&low)[4],
                                               const Operands<Terms> (&y)[4], Product product) {
#pragma unroll
  for (int p = 0; p < 3; ++p)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint32_t b[2] = {p == 1 ? y[c].x.low : y[c].x.high, p == 1 ? y[c].y.low : y[c].y.high};
      product(sums[c], p == 0 ? low : high, b);
    }
}

// Tile map: both products with the state over this half of the keys. Lane l of a product holds rows l / 4 (+ 8) and
// the values of column l / 4: the tile's four columns are four products. The keys of a product are a lane's next ones,
// times the four lanes that share columns: their order does not matter.
template <int kDim, class S>
__device__ __forceinline__ void meet_state(S& s, const Map<kDim>& map, int from, const Tile<kDim>& tile) {
  float sums[4][4] = {};
  const int row = map.lane / 4;
#pragma unroll
  for (int part = 0; part < Map<kDim>::kKeys / 4; ++part) {
    const int key = map.key(4 * part);
    const float4* x = tile.x + 4 * part;
    const float values[4][4] = {{x[0].x, x[0].y, x[0].z, x[0].w}, {x[1].x, x[1].y, x[1].z, x[1].w},
                                {x[2].x, x[2].y, x[2].z, x[2].w}, {x[3].x, x[3].y, x[3].z, x[3].w}};
    if constexpr (std::is_same_v<typename S::E, float>) {
      float four[8];
      load_lane(four, s.decayed(row) + 2 * key);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const Split a[4] = {Split(four[2 * i]), Split(four[2 * i + 2]), Split(four[2 * i + 1]), Split(four[2 * i + 3])};
        const auto of = [&](int c) { return Operands<Split>{Split(values[i][c]), Split(values[i + 1][c])}; };
        const Operands<Split> y[4] = {of(0), of(1), of(2), of(3)};
        multiply_split(sums, {a[0].high, a[1].high, a[2].high, a[3].high}, {a[0].low, a[1].low, a[2].low, a[3].low}, y,
                       [](auto&... arguments) { tensor_core_tf32(arguments...); });
      }
    } else {
      const uint4 high = *reinterpret_cast<const uint4*>(s.decayed(row) + 2 * key),
                  low = *reinterpret_cast<const uint4*>(s.decayed(row, 1) + 2 * key);
      const auto of = [&](int c) {
        return Operands<SplitPair>{SplitPair(values[0][c], values[1][c]), SplitPair(values[2][c], values[3][c])};
      };
      const Operands<SplitPair> y[4] = {of(0), of(1), of(2), of(3)};
      multiply_split(sums, {high.x, high.y, high.z, high.w}, {low.x, low.y, low.z, low.w}, y,
                     [](auto&... arguments) { tensor_core_bf16(arguments...); });
    }
  }
  __syncthreads();  // the decayed vectors are read
  // Columns 2 (l % 4) and the next one of each product are value columns 8 (l % 4) + c and 4 more.
  const int column = map.column - 4 * (map.lane / 4) + 8 * (map.lane % 4);
  if (from + row < kChunk)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      *reinterpret_cast<float4*>(s.sums(map.half, e / 2, from + row) + column + 4 * (e % 2)) =
          make_float4(sums[0][e], sums[1][e], sums[2][e], sums[3][e]);
  pair_barrier(map);
}

struct Four {
  float x[4];
};
// A thread = one value column, whose sums its warp and the partner have formed (two threads a column share the
// outputs): the triangular system, then o. They replace the sums over the queries: o those of the first half of the
// keys, u those of the second.
template <int kDim, class S>
__device__ __forceinline__ void solve_drafts(S& s, const Map<kDim>& map, int from, int count) {
  const int column = map.thread % kDim, part = map.thread / kDim;
  const auto at = [&](int t) { return min(from + t, kChunk - 1); };  // behind the last draft: numbers that nobody reads
  const auto four_of = [&](int t, int which, int e) {
    const float4 four = *reinterpret_cast<const float4*>(&s.met[t][which][e]);
    return Four{four.x, four.y, four.z, four.w};
  };
  float u[kChunk];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) u[t] = s.sums(0, 0, at(t))[column] + s.sums(1, 0, at(t))[column];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {
    float seen = u[t];
#pragma unroll
    for (int e = 0; e < t; e += 4) {
      const Four met = four_of(t, 0, e);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (e + i < t) seen = fmaf(met.x[i], u[e + i], seen);
    }
    const float2 scale = s.scales[t];
    u[t] = t < count ? scale.y * fmaf(-scale.x, seen, s.v(at(t))[column]) : 0.f;
  }
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    const int t = 2 * i + part;
    if (t >= count) break;
    float o = s.sums(0, 1, from + t)[column] + s.sums(1, 1, from + t)[column];
#pragma unroll
    for (int e = 0; e < 2 * i + 2; e += 4) {
      const Four met = four_of(t, 1, e);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (e + j < 2 * i + 2) o = fmaf(met.x[j], u[e + j], o);
    }
    s.sums(0, 1, from + t)[column] = o, s.sums(1, 1, from + t)[column] = part == 0 ? u[2 * i] : u[2 * i + 1];
  }
}

// o of a draft, from the first half's place.
template <int kDim, class S>
__device__ __forceinline__ void draft_output(S& s, int lane, int t, float (&o)[Map<kDim>::kLane]) {
  load_lane(o, s.sums(0, 1, t) + Map<kDim>::kLane * lane);
  const float scale = s.inverse_length(0, t) * inverse_sqrt(static_cast<float>(kDim));
#pragma unroll
  for (int i = 0; i < Map<kDim>::kLane; ++i) o[i] *= scale;
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
  for (int part = 0; part < Map<kDim>::kKeys; part += 4) {
    float run[4] = {1.f, 1.f, 1.f, 1.f};
    for (int t = 0; t < count; ++t) {
      float decay[4];
      load_lane(decay, s.decay(from + t) + map.key(part));
#pragma unroll
      for (int i = 0; i < 4; ++i) run[i] *= decay[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float4& v = tile.x[part + i];
      v.x *= run[i], v.y *= run[i], v.z *= run[i], v.w *= run[i];
    }
  }
  for (int t = 0; t < count; ++t) {
    float u[4];
    load_lane(u, s.sums(1, 1, from + t) + map.column);
    tile.add(s.q(from + t), map, u);
  }
}

}  // namespace k3::cuda::kda::step_detail
