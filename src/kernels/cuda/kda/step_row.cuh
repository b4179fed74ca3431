// One row and head of the token step (step.h): who holds what, and what decode, verification and replay share. A block
// has 2 dim threads and plays three thread maps in turn:
//   streams  thread = two channels of q, k, v or z: convolution, sums of squares, decay   (step_stream.cuh)
//   tile     thread = 4 value columns of dim / 8 neighbouring keys of the state. Here a warp holds 32 columns of
//            dim / 2 keys and four neighbouring lanes share columns, as the tensor cores want it (step_tile.cuh);
//            step_decode.cu has whole keys in a warp.
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
constexpr int kSingles = 3;  // tokens one by one in front of drafts in one chunk of several: Shared::decayed()

__device__ __forceinline__ float gate_sigmoid(float x) { return approximate_reciprocal(1.f + fast_exp(-x)); }

template <int kDim>
struct Map {
  static constexpr int kThreads = 2 * kDim, kWarps = kThreads / 32;
  static constexpr int kKeys = kDim / 8;                              // keys of a thread
  static constexpr int kLane = kDim / 32;                             // channels of a lane in the output map
  static constexpr int kStreamLanes = kDim / 2 < 32 ? kDim / 2 : 32;  // lanes of a warp that serve one stream
  static constexpr int kStreamWarps = kDim / 2 / kStreamLanes;

  int thread, warp, lane, half, column, first_key;
  __device__ __forceinline__ explicit Map(unsigned t)
      : thread(t % kThreads), warp(t / 32 % kWarps), lane(t % 32), half(t / kDim % 2),
        column(t / 32 % kLane * 32 + t % 32 / 4 * 4), first_key((4 * half + lane % 4) * kKeys) {}
  // Channel c of q, k and the decay lies at place(c), so that what four neighbouring lanes read together is contiguous:
  // within a half, the first four keys of its four threads, their next four, ...
  __device__ __forceinline__ static constexpr int place(int channel) {
    constexpr int kFours = kKeys / 4;
    const int group = channel / kKeys, four = channel / 4 % kFours;
    return ((group / 4 * kFours + four) * 4 + group % 4) * 4 + channel % 4;
  }
  // place(first_key + i), i a multiple of four.
  __device__ __forceinline__ int place_of_key(int i) const { return ((half * (kKeys / 4) + i / 4) * 4 + lane % 4) * 4; }
};

struct Row {
  int slot, first, tokens, commit;
};

// Orders the two warps that hold the same columns, each over half of the keys.
template <int kDim>
__device__ __forceinline__ void pair_barrier(const Map<kDim>& map) {
  named_barrier<64>(1 + map.warp % Map<kDim>::kLane);
}

// Shared memory of the window kernel: vectors of up to kChunk tokens. kWhole: a row is one chunk. kStaged: the state
// comes and goes through shared memory (step_tile.cuh).
template <int kDim_, class E_, bool kWhole_, bool kStaged_>
struct Shared {
  using E = E_;
  static constexpr int kDim = kDim_;
  static constexpr bool kWhole = kWhole_, kStaged = kStaged_;
  static constexpr int kKeys = Map<kDim>::kKeys, kGroups = kDim / kKeys;
  static constexpr int kGroupBytes = kKeys * kDim * sizeof(float), kGroupPitch = kGroupBytes + 32;

  alignas(128) unsigned char stage[kStaged ? kGroups * kGroupPitch : 16];  // groups of keys, 32 bytes between them
  float vectors[4][kChunk][kDim];                     // q and k before their norms, v, decay e^g
  float work[kChunk][4 * kDim + 4];                   // sums(), and decayed() of rows of several chunks
  E raw[4][kChunk][kDim];                             // q, k, v, z of the next tokens
  E window[3 * kPast][kDim];                          // in front of the next tokens: oldest first; q, k, v
  float squares[kChunk][2][Map<kDim>::kStreamWarps];  // of q and k
  float beta[kChunk];
  float met[kChunk][2][kChunk];  // drafts: [t][k, q][s]: (k or q)_t . decay (.) k_s
  float2 scales[kChunk];         // drafts: 1 / |k_t|, beta_t / |k_t|
  float norm_weight[kDim], ones[kDim];
  Row row;
  uint64_t arrival;  // barrier of the stage

  // Key i of a thread. The pitch spreads the groups of four neighbouring lanes over the banks.
  __device__ __forceinline__ float4* staged(const Map<kDim>& map, int i) {
    return reinterpret_cast<float4*>(stage + map.first_key / kKeys * kGroupPitch + i * kDim * sizeof(float)) +
           map.column / 4;
  }
  __device__ __forceinline__ float* q(int t) { return vectors[0][t]; }
  __device__ __forceinline__ float* k(int t) { return vectors[1][t]; }
  __device__ __forceinline__ float* v(int t) { return vectors[2][t]; }
  __device__ __forceinline__ float* decay(int t) { return vectors[3][t]; }
  // k (0) and q (1) of token t times the state, over half of the keys.
  __device__ __forceinline__ float* sums(int half, int which, int t) { return &work[t][(2 * half + which) * kDim]; }
  // Drafts: k and q of token t decayed from the start of the chunk, in the tensor cores' order: of every four keys two
  // of k, two of q, the next two of k, of q; the keys at place(). fp32: as they are (term 0), bf16: in two terms. They
  // lie where the raw tokens and the window were, or, where these are needed for the next chunk, where the sums of the
  // drafts come when they are read.
  __device__ __forceinline__ E* decayed(int t, int term = 0) {
    constexpr int kTerms = sizeof(E) == 2 ? 2 : 1, kPitch = 2 * kDim + (kDim == 32 ? 16 : 32);
    constexpr int kRoom = kWhole ? sizeof(raw) + sizeof(window) : (kChunk - kSingles) * sizeof(work[0]);
    static_assert(kTerms * kChunk * kPitch * sizeof(E) <= kRoom);
    E* place = kWhole ? raw[0][0] : reinterpret_cast<E*>(work[kSingles]);
    return place + (term * kChunk + t) * kPitch;
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
template <int kCount, class E>
struct alignas(kCount * sizeof(E)) Packed {  // neighbouring values as they lie in memory
  E x[kCount];
};
template <int kCount, class E>
__device__ __forceinline__ Packed<kCount, E> load_packed(const E* p) {
  return *reinterpret_cast<const Packed<kCount, E>*>(p);
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
  load_lane(q, s.q(t) + Map<kDim>::place(channel)), load_lane(k, s.k(t) + Map<kDim>::place(channel));
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
