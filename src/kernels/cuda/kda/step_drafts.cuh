// Up to 8 drafts of one row and head in chunk form (kernels.md 1.2): the state is read, not changed. With c_t the
// product of the decays up to and including token t, and c_t / c_s never formed as a quotient (products of decays <= 1,
// so any gate g <= 0 is safe), k and q before their norms, u divided by |k|:
//   met[t][k] s = sum_d k_t (c_t / c_s) k_s, s < t;     met[t][q] s = sum_d q_t (c_t / c_s) k_s, s <= t
//   u_t = beta_t / |k_t| (v_t - ((c_t k_t)^T S + sum_s met[t][k] s u_s) / |k_t|)
//   o_t = ((c_t q_t)^T S + sum_s met[t][q] s u_s) / |q_t| / sqrt(dim)
// The products with S: step_drafts_state.cuh.
#pragma once

#include "kernels/cuda/kda/step_drafts_state.cuh"

namespace k3::cuda::kda::step_detail {

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
      if (back == kChunk / 2 && t < kChunk / 2) break;  // the same for the whole warp
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
    const auto fold = [&](int width) { fold_lanes(sums, width, map.lane, 2 * width); };
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

// A thread = one value column, whose sums its warp and the partner have formed (two threads a column share the
// outputs): the triangular system, then o. They replace the sums over the queries: o those of the first half of the
// keys, u those of the second.
template <int kDim, class S>
__device__ __forceinline__ void solve_drafts(S& s, const Map<kDim>& map, int from, int count) {
  const int column = map.thread % kDim, part = map.thread / kDim;
  const auto at = [&](int t) { return min(from + t, kChunk - 1); };  // behind the last draft: numbers that nobody reads
  float u[kChunk];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) u[t] = s.sums(0, 0, at(t))[column] + s.sums(1, 0, at(t))[column];
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {
    float seen = u[t];
#pragma unroll
    for (int e = 0; e < t; e += 4) {
      float met[4];
      load_lane(met, &s.met[t][0][e]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (e + i < t) seen = fmaf(met[i], u[e + i], seen);
    }
    const float2 scale = s.scales[t];
    u[t] = t < count ? scale.y * fmaf(-scale.x, seen, s.v(at(t))[column]) : 0.f;
  }
  float o[kChunk / 2];  // all loads before the first store
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    const int t = 2 * i + part;
    o[i] = t < count ? s.sums(0, 1, from + t)[column] + s.sums(1, 1, from + t)[column] : 0.f;
#pragma unroll
    for (int e = 0; e < 2 * i + 2; e += 4) {
      float met[4];
      load_lane(met, &s.met[t][1][e]);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (e + j < 2 * i + 2) o[i] = fmaf(met[j], u[e + j], o[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    const int t = 2 * i + part;
    if (t >= count) break;
    s.sums(0, 1, from + t)[column] = o[i], s.sums(1, 1, from + t)[column] = part == 0 ? u[2 * i] : u[2 * i + 1];
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

// Before absorb_drafts(): c_n / c_t k_t over q.
template <int kDim, class S>
__device__ __forceinline__ void restore_keys(S& s, const Map<kDim>& map, int from, int count) {
  constexpr int kLane = Map<kDim>::kLane;
  for (int t = map.warp; t < count; t += Map<kDim>::kWarps)
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      float k = s.k(from + t)[kLane * map.lane + i];
      for (int e = t + 1; e < count; ++e) k *= s.decay(from + e)[kLane * map.lane + i];
      s.q(from + t)[kLane * map.lane + i] = k;
    }
}

}  // namespace k3::cuda::kda::step_detail
