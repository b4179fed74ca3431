// Streams of one row and head (step_row.cuh): thread = two channels of q, k, v or z, a quarter of the block each. Raw
// projections become the vectors of the recurrence: convolution over the window, SiLU, sums of squares of q and k,
// decay e^g of z.
#pragma once

#include "kernels/cuda/kda/step_row.cuh"

namespace k3::cuda::kda::step_detail {

// The weights and the window of a thread's two channels.
template <int kDim, class E>
struct Stream {
  int which, channel;  // 0 .. 3: q, k, v, z
  float4 weights[2];   // taps of the two channels; z: (dt_bias, e^a_log, -, -)
  Pair<E> past[kPast];
  std::int64_t width;
  E* window;

  __device__ __forceinline__ Stream(const StepArguments& a, int head, unsigned thread) {
    which = thread / (kDim / 2) % 4, channel = thread % (kDim / 2) * 2;
    width = static_cast<std::int64_t>(a.heads) * kDim;
    const std::int64_t own = static_cast<std::int64_t>(head) * kDim + channel;
    if (which < 3) {
      const float4* taps = reinterpret_cast<const float4*>(a.taps) + which * width + own;
      weights[0] = taps[0], weights[1] = taps[1];
    } else {
      weights[0].x = a.dt_bias[own], weights[1].x = a.dt_bias[own + 1];
      weights[0].y = a.a_log[head];
    }
    window = static_cast<E*>(a.window) + which * width + own;
  }
  __device__ __forceinline__ E* window_at(int slot, int i) const {
    return window + (static_cast<std::int64_t>(slot) * kPast + i) * 3 * width;
  }
  __device__ __forceinline__ void read_window(int slot) {
    if (which < 3)
#pragma unroll
      for (int i = 0; i < kPast; ++i) past[i] = load_pair(window_at(slot, i));
  }
  template <class S>
  __device__ __forceinline__ void load_window(const S& s) {
    if (which < 3)
#pragma unroll
      for (int i = 0; i < kPast; ++i) past[i] = load_pair(&s.window[3 * i + which][channel]);
  }
  // The i-th raw token of the window behind the first `count` tokens at hand.
  template <class S>
  __device__ __forceinline__ Pair<E> window_behind(const S& s, int count, int i) const {
    const int t = count - kPast + i;
    return load_pair(t >= 0 ? &s.raw[which][t][channel] : &s.window[3 * (kPast + t) + which][channel]);
  }
  template <class S>
  __device__ __forceinline__ void keep_window(S& s, int count) const {  // for the next tokens of the same row
    if (which < 3)
#pragma unroll
      for (int i = 0; i < kPast; ++i)
        *reinterpret_cast<Pair<E>*>(&s.window[3 * i + which][channel]) = window_behind(s, count, i);
  }
  __device__ __forceinline__ void store_window(int slot) const {
    if (which < 3)
#pragma unroll
      for (int i = 0; i < kPast; ++i) *reinterpret_cast<Pair<E>*>(window_at(slot, i)) = past[i];
  }

  __device__ __forceinline__ float2 convolve(float2 x) const {
    const float2 x0 = widen(past[0]), x1 = widen(past[1]), x2 = widen(past[2]);
    const float4 a = weights[0], b = weights[1];
    const float s = fmaf(a.w, x.x, fmaf(a.z, x2.x, fmaf(a.y, x1.x, a.x * x0.x))),
                t = fmaf(b.w, x.y, fmaf(b.z, x2.y, fmaf(b.y, x1.y, b.x * x0.y)));
    const float2 y = make_float2(s * gate_sigmoid(s), t * gate_sigmoid(t));
    if constexpr (std::is_same_v<E, float>) return y;
    else return both(bf16_pair(y.x, y.y));
  }
  template <bool kBounded>
  __device__ __forceinline__ float2 decays_of(float2 z, float lower_bound) const {
    const float speed = fast_exp(weights[0].y), x = z.x + weights[0].x, y = z.y + weights[1].x;
    const auto gate = [&](float logit) {
      if constexpr (kBounded) return lower_bound * gate_sigmoid(speed * logit);
      else return -speed * softplus(logit);
    };
    return make_float2(fast_exp(gate(x)), fast_exp(gate(y)));
  }
  __device__ __forceinline__ void shift(Pair<E> raw) { past[0] = past[1], past[1] = past[2], past[2] = raw; }
  __device__ __forceinline__ float2 decays(float2 z, float lower_bound) const {
    return lower_bound != 0.f ? decays_of<true>(z, lower_bound) : decays_of<false>(z, lower_bound);
  }
  __device__ __forceinline__ static float square(float2 y) { return fmaf(y.x, y.x, y.y * y.y); }
  // The vectors of `count` tokens to shared memory, kTogether at a time: behind the last token stands what nobody
  // reads, which costs less than branches that keep the tokens' chains apart. The loads of a round come before its
  // first store, in front of which the compiler would move none. The window behind the first `commit` tokens goes to
  // memory (none when commit is outside 1 .. count).
  template <class S>
  __device__ __forceinline__ void prepare(S& s, int count, int commit, int slot, float lower_bound,
                                          const Map<kDim>& map) {
    constexpr int kLanes = Map<kDim>::kStreamLanes, kTogether = 4;
    static_assert(kChunk % kTogether == 0);
    const int place = which == 2 ? channel : Map<kDim>::place(channel);
    const auto load = [&](int first, Pair<E>(&x)[kTogether]) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) x[i] = load_pair(&s.raw[which][first + i][channel]);
    };
    const auto put = [&](int first, const float2(&y)[kTogether]) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) *reinterpret_cast<float2*>(&s.vectors[which][first + i][place]) = y[i];
    };
    Pair<E> x[kTogether];
    float2 y[kTogether];
    if (which == 3) {
      const auto put_decays = [&](auto of) {
#pragma unroll 1
        for (int first = 0; first < count; first += kTogether) {
          load(first, x);
#pragma unroll
          for (int i = 0; i < kTogether; ++i) y[i] = of(widen(x[i]));
          put(first, y);
        }
      };
      if (lower_bound != 0.f) put_decays([&](float2 z) { return decays_of<true>(z, lower_bound); });
      else put_decays([&](float2 z) { return decays_of<false>(z, lower_bound); });
      return;
    }
#pragma unroll 1
    for (int first = 0; first < count; first += kTogether) {
      load(first, x);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) y[i] = convolve(widen(x[i])), shift(x[i]);
      put(first, y);
      if (which == 2) continue;
      float squares[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) squares[i] = square(y[i]);
      // The additions of sum_lanes in their order: each exchange halves what a lane carries.
#pragma unroll
      for (int i = 2; i <= kTogether; i *= 2) fold_lanes(squares, kTogether / i, map.lane, kLanes / i);
      squares[0] = sum_lanes(squares[0], kLanes / kTogether);
      const int lane = map.lane % kLanes, group = kLanes / kTogether;  // lanes that hold the same token
      if (lane % group == 0) s.squares[first + lane / group][which][map.thread % (kDim / 2) / 32] = squares[0];
    }
    if (commit < 1 || commit > count) return;
#pragma unroll
    for (int i = 0; i < kPast; ++i) *reinterpret_cast<Pair<E>*>(window_at(slot, i)) = window_behind(s, commit, i);
  }
};

}  // namespace k3::cuda::kda::step_detail
