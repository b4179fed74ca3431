// One row and head of the token step (step.h): who holds what, and what decode, verification and replay share. A block
// has 2 dim threads and plays three thread maps in turn:
//   streams  thread = two channels of q, k, v or z: convolution, sums of squares, decay   (quarter of the block each)
//   tile     thread = 4 value columns of dim / 8 keys of the state, in registers. Here (step_window.cu) a
//            warp holds 32 columns of dim / 2 keys and four neighbouring lanes share columns, as the tensor cores want
//            it; step_decode.cu has whole keys in a warp.
//   output   a warp = one token, a lane = dim / 32 neighbouring channels: RMS norm, gate
// Sums over the keys are formed alike everywhere: fmaf over a thread's keys from the first to the last, then
// ((g0 + g2) + (g1 + g3)) + ((g4 + g6) + (g5 + g7)) over the eight groups of keys. So a token gives the same bits in
// whichever call it is committed.
#pragma once

#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/kda/step.h"

namespace k3::cuda::kda::step_detail {

constexpr int kTaps = 4, kPast = kTaps - 1;
constexpr int kChunk = 8;    // tokens prepared together, drafts in one chunk
constexpr int kSingles = 3;  // tokens one by one in front of drafts in one chunk: Shared::decayed() begins behind them

__device__ __forceinline__ float gate_sigmoid(float x) { return approximate_reciprocal(1.f + fast_exp(-x)); }

template <int kDim>
struct Map {
  static constexpr int kThreads = 2 * kDim, kWarps = kThreads / 32;
  static constexpr int kKeys = kDim / 8;                              // keys of a thread
  static constexpr int kLane = kDim / 32;                             // channels of a lane in the output map
  static constexpr int kStreamLanes = kDim / 2 < 32 ? kDim / 2 : 32;  // lanes of a warp that serve one stream
  static constexpr int kStreamWarps = kDim / 2 / kStreamLanes;

  int thread, warp, lane, half, column, first_key;
  __device__ __forceinline__ explicit Map(int thread_)
      : thread(thread_), warp(thread_ / 32), lane(thread_ % 32), half(warp / kLane),
        column(32 * (warp % kLane) + 4 * (lane / 4)), first_key(group_key(4 * half + lane % 4)) {}
  // Key i of group g is group_key(g) + key_step(i): fours of keys, those of four groups side by side.
  __device__ __forceinline__ static constexpr int group_key(int g) { return g / 4 * (kDim / 2) + g % 4 * 4; }
  __device__ __forceinline__ static constexpr int key_step(int i) { return 16 * (i / 4) + i % 4; }
  __device__ __forceinline__ int key(int i) const { return first_key + key_step(i); }
};

struct Row {
  int slot, first, tokens, commit;
};

// Orders the two warps that hold the same columns, each over half of the keys.
template <int kDim>
__device__ __forceinline__ void pair_barrier(const Map<kDim>& map) {
  named_barrier<64>(1 + map.warp % Map<kDim>::kLane);
}

// Shared memory of the window kernel: vectors of up to kChunk tokens.
template <int kDim, class E_>
struct Shared {
  using E = E_;
  float vectors[4][kChunk][kDim];  // q and k before their norms, v, decay e^g
  float work[kChunk][4 * kDim + 4];                   // sums() and decayed()
  E raw[4][kChunk][kDim];                             // q, k, v, z of the next tokens
  E gate[2][kChunk][kDim];                            // of the tokens at hand and of the next ones
  E window[3 * kPast][kDim];                          // in front of the next tokens: oldest first; q, k, v
  float squares[kChunk][2][Map<kDim>::kStreamWarps];  // of q and k
  float beta[kChunk];
  float met[kChunk][2][kChunk];  // drafts: [t][k, q][s]: (k or q)_t . decay (.) k_s
  float2 scales[kChunk];         // drafts: 1 / |k_t|, beta_t / |k_t|
  float norm_weight[kDim], ones[kDim];
  Row row;
  int later_slot;  // of the item whose state is asked for

  __device__ __forceinline__ float* q(int t) { return vectors[0][t]; }
  __device__ __forceinline__ float* k(int t) { return vectors[1][t]; }
  __device__ __forceinline__ float* v(int t) { return vectors[2][t]; }
  __device__ __forceinline__ float* decay(int t) { return vectors[3][t]; }
  // k (0) and q (1) of token t times the state, over half of the keys.
  __device__ __forceinline__ float* sums(int half, int which, int t) { return &work[t][(2 * half + which) * kDim]; }
  // Drafts: k and q of token t decayed from the start of the chunk, in the tensor cores' order: of every four keys two
  // of k, two of q, the next two of k, of q. fp32: as they are (term 0), bf16: in two terms. Dead when the sums of the
  // drafts are written.
  __device__ __forceinline__ E* decayed(int t, int term = 0) {
    constexpr int kTerms = sizeof(E) == 2 ? 2 : 1, kPitch = 2 * kDim + (kDim == 32 ? 16 : 32);
    static_assert(kTerms * kChunk * kPitch * sizeof(E) <= (kChunk - kSingles) * sizeof(work[0]));
    return reinterpret_cast<E*>(work[kSingles]) + (term * kChunk + t) * kPitch;
  }
  __device__ __forceinline__ float inverse_length(int which, int t) const {
    float square = 1e-6f;
#pragma unroll
    for (int w = 0; w < Map<kDim>::kStreamWarps; ++w) square += squares[t][which][w];
    return inverse_sqrt(square);
  }
};

template <class E>  // two neighbouring values as they lie in memory
using Pair = std::conditional_t<std::is_same_v<E, float>, float2, uint32_t>;
__device__ __forceinline__ float2 widen(float2 pair) { return pair; }
__device__ __forceinline__ float2 widen(uint32_t pair) { return both(pair); }
template <class E>
__device__ __forceinline__ Pair<E> load_pair(const E* p) {
  return *reinterpret_cast<const Pair<E>*>(p);
}

template <class E>
__device__ __forceinline__ const E* at(const Rows& rows, std::int64_t token, int head) {
  return static_cast<const E*>(rows.data) + token * rows.token_stride + head * rows.head_stride;
}
template <int kCount, class T>  // neighbouring values of a lane, as fp32
__device__ __forceinline__ void load_lane(float (&x)[kCount], const T* p) {
  if constexpr (kCount == 4) {
    const float4 four = load4(p);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = load1(p + i);
  }
}
__device__ __forceinline__ float sum_lanes(float x, int lanes) {
  for (int step = lanes / 2; step >= 1; step /= 2) x += shuffle_xor(x, step);
  return x;
}

template <int kCount>
__device__ __forceinline__ float dot_lanes(const float (&x)[kCount], const float (&y)[kCount]) {  // over a warp
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum = fmaf(x[i], y[i], sum);
  return sum_lanes(sum, 32);
}

// Stream map: the weights and the window of a thread's two channels.
template <int kDim, class E>
struct Stream {
  int which, channel;  // 0 .. 3: q, k, v, z
  float4 weights[2];   // taps of the two channels; z: (dt_bias, e^a_log, -, -)
  Pair<E> past[kPast];
  std::int64_t width;
  E* window;

  __device__ __forceinline__ Stream(const StepArguments& a, int head, int thread) {
    which = thread / (kDim / 2), channel = thread % (kDim / 2) * 2;
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
  // The vectors of `count` tokens to shared memory, in fours: behind the last token stands what nobody reads, which
  // costs less than branches that keep the tokens' chains apart. The window behind the first `commit` of them goes to
  // memory (none when commit is outside 1 .. count).
  template <class S>
  __device__ __forceinline__ void prepare(S& s, int count, int commit, int slot, float lower_bound,
                                          const Map<kDim>& map) {
    constexpr int kLanes = Map<kDim>::kStreamLanes, kTogether = 4;
    static_assert(kChunk % kTogether == 0);
    const auto put = [&](int t, float2 y) { *reinterpret_cast<float2*>(&s.vectors[which][t][channel]) = y; };
    const auto raw = [&](int t) { return load_pair(&s.raw[which][t][channel]); };
    if (which == 3) {
      const auto put_decays = [&](auto of) {
        for (int first = 0; first < count; first += kTogether)
#pragma unroll
          for (int i = 0; i < kTogether; ++i) put(first + i, of(widen(raw(first + i))));
      };
      if (lower_bound != 0.f) put_decays([&](float2 z) { return decays_of<true>(z, lower_bound); });
      else put_decays([&](float2 z) { return decays_of<false>(z, lower_bound); });
      return;
    }
    for (int first = 0; first < count; first += kTogether) {
      float squares[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const Pair<E> x = raw(first + i);
        const float2 y = convolve(widen(x));
        shift(x);
        put(first + i, y);
        squares[i] = square(y);
      }
      if (which == 2) continue;
      // The additions of sum_lanes in their order: each exchange halves what a lane carries.
      const auto fold = [&](int width, int step) {
        const bool upper = map.lane & step;
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const float kept = upper ? squares[i + width] : squares[i], sent = upper ? squares[i] : squares[i + width];
          squares[i] = kept + shuffle_xor(sent, step);
        }
      };
      fold(2, kLanes / 2), fold(1, kLanes / 4);
      squares[0] = sum_lanes(squares[0], kLanes / 4);
      const int lane = map.lane % kLanes, group = kLanes / 4;  // lanes that hold the same token
      if (lane % group == 0) s.squares[first + lane / group][which][map.thread % (kDim / 2) / 32] = squares[0];
    }
    if (commit < 1 || commit > count) return;
#pragma unroll
    for (int i = 0; i < kPast; ++i) *reinterpret_cast<Pair<E>*>(window_at(slot, i)) = window_behind(s, commit, i);
  }
};

// Tile map: the state of a thread.
template <int kDim>
struct Tile {
  float4 x[Map<kDim>::kKeys];

  __device__ __forceinline__ void load(const Map<kDim>& map, const float* state) {
    const float* memory = state + map.first_key * kDim + map.column;
#pragma unroll
    for (int i = 0; i < Map<kDim>::kKeys; ++i) x[i] = load4(memory + Map<kDim>::key_step(i) * kDim);
  }
  __device__ __forceinline__ void store(const Map<kDim>& map, float* state) const {
    float* memory = state + map.first_key * kDim + map.column;
#pragma unroll
    for (int i = 0; i < Map<kDim>::kKeys; ++i) store4(memory + Map<kDim>::key_step(i) * kDim, x[i]);
  }
  // Decays the state by token t's gate and writes D^T k and D^T q over this half of the keys to shared memory.
  template <class S>
  __device__ __forceinline__ void decay_and_meet(S& s, const Map<kDim>& map, int t) {
    float k_sums[4] = {}, q_sums[4] = {};
#pragma unroll
    for (int part = 0; part < Map<kDim>::kKeys / 4; ++part) {
      float q[4], k[4], decay[4];
      const int key = map.key(4 * part);
      load_lane(q, s.q(t) + key), load_lane(k, s.k(t) + key), load_lane(decay, s.decay(t) + key);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float4& v = x[4 * part + i];
        v.x *= decay[i], v.y *= decay[i], v.z *= decay[i], v.w *= decay[i];
        k_sums[0] = fmaf(v.x, k[i], k_sums[0]), k_sums[1] = fmaf(v.y, k[i], k_sums[1]);
        k_sums[2] = fmaf(v.z, k[i], k_sums[2]), k_sums[3] = fmaf(v.w, k[i], k_sums[3]);
        q_sums[0] = fmaf(v.x, q[i], q_sums[0]), q_sums[1] = fmaf(v.y, q[i], q_sums[1]);
        q_sums[2] = fmaf(v.z, q[i], q_sums[2]), q_sums[3] = fmaf(v.w, q[i], q_sums[3]);
      }
    }
    // Over the four lanes that share columns: each exchange halves what a lane carries, lane m ends with column m.
    const auto fold = [&](float(&sums)[4], int width) {
      const bool upper = map.lane & width;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i >= width) continue;
        const float kept = upper ? sums[i + width] : sums[i], sent = upper ? sums[i] : sums[i + width];
        sums[i] = kept + shuffle_xor(sent, width);
      }
    };
    fold(k_sums, 2), fold(q_sums, 2), fold(k_sums, 1), fold(q_sums, 1);
    s.sums(map.half, 0, t)[map.column + map.lane % 4] = k_sums[0];
    s.sums(map.half, 1, t)[map.column + map.lane % 4] = q_sums[0];
  }
  // S = D + k u^T; u comes divided by |k|.
  __device__ __forceinline__ void add(const float* keys, const Map<kDim>& map, const float (&u)[4]) {
#pragma unroll
    for (int part = 0; part < Map<kDim>::kKeys / 4; ++part) {
      float k[4];
      load_lane(k, keys + map.key(4 * part));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float4& v = x[4 * part + i];
        v.x = fmaf(k[i], u[0], v.x), v.y = fmaf(k[i], u[1], v.y), v.z = fmaf(k[i], u[2], v.z),
        v.w = fmaf(k[i], u[3], v.w);
      }
    }
  }
};

// u / |k| of token t for kCount neighbouring columns, from the sums of both halves; length = 1 / |k|.
template <int kCount, class S>
__device__ __forceinline__ void solve(S& s, int t, float length, int column, float (&u)[kCount]) {
  const float scale = length * s.beta[t];
  float low[kCount], high[kCount], v[kCount];
  load_lane(low, s.sums(0, 0, t) + column), load_lane(high, s.sums(1, 0, t) + column), load_lane(v, s.v(t) + column);
#pragma unroll
  for (int i = 0; i < kCount; ++i) u[i] = scale * fmaf(-length, low[i] + high[i], v[i]);
}

// Output map: y of one token, from o and the gate.
template <int kDim, class E>
__device__ __forceinline__ void store_output(const StepArguments& a, std::int64_t token, int head, int lane,
                                             float (&o)[Map<kDim>::kLane], const float (&gate)[Map<kDim>::kLane],
                                             const float (&weight)[Map<kDim>::kLane]) {
  constexpr int kLane = Map<kDim>::kLane;
  float square = 0.f;
#pragma unroll
  for (int i = 0; i < kLane; ++i) square = fmaf(o[i], o[i], square);
  const float length = inverse_sqrt(fmaf(sum_lanes(square, 32), 1.f / kDim, a.norm_eps));
#pragma unroll
  for (int i = 0; i < kLane; ++i) o[i] = o[i] * length * weight[i] * gate_sigmoid(gate[i]);
  E* y = static_cast<E*>(a.y.data) + token * a.y.token_stride + head * a.y.head_stride + kLane * lane;
  if constexpr (kLane == 4) {
    store4(y, make_float4(o[0], o[1], o[2], o[3]));
  } else {
#pragma unroll
    for (int i = 0; i < kLane; ++i) store1(y + i, o[i]);
  }
}
// o of a token that entered the state: (D^T q + (q . k) u) / |q| / sqrt(dim).
template <int kDim, class S>
__device__ __forceinline__ void token_output(S& s, int lane, int t, float (&o)[Map<kDim>::kLane]) {
  constexpr int kLane = Map<kDim>::kLane;
  float q[kLane], k[kLane], u[kLane], low[kLane], high[kLane];
  const int channel = kLane * lane;
  load_lane(q, s.q(t) + channel), load_lane(k, s.k(t) + channel);
  const float meet = dot_lanes(q, k);
  solve(s, t, s.inverse_length(1, t), kLane * lane, u);
  load_lane(low, s.sums(0, 1, t) + kLane * lane), load_lane(high, s.sums(1, 1, t) + kLane * lane);
  const float scale = s.inverse_length(0, t) * inverse_sqrt(static_cast<float>(kDim));
#pragma unroll
  for (int i = 0; i < kLane; ++i) o[i] = scale * fmaf(meet, u[i], low[i] + high[i]);
}

cudaError_t launch_decode(const StepArguments& a, cudaStream_t stream);  // no row longer than one token
cudaError_t launch_window(const StepArguments& a, cudaStream_t stream);

}  // namespace k3::cuda::kda::step_detail
