// The token step where every row has at most one token (step.h): one block a row and head, no loop. A thread holds 4
// value columns of dim / 8 keys, dim / 4 neighbouring threads hold a whole key: at dim 128 a load of a
// warp is the 512 contiguous bytes of one key. Everything a row needs is asked for before the first value is used.
// Sums over the keys (order: step_row.cuh): within a thread, then over the eight groups of keys through shared memory.
#include "kernels/cuda/common/cache_hints.cuh"
#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/dispatch.h"
#include "kernels/cuda/kda/step_stream.cuh"

namespace k3::cuda::kda::step_detail {
namespace {

constexpr int kGroups = 8;  // of keys

template <int kDim>
struct DecodeShared {
  float vectors[4][kDim];  // q and k before their norms, v, decay e^g
  float sums[2][kGroups][kDim];  // k, q times the decayed state
  float squares[2][Map<kDim>::kStreamWarps];
  float beta;

  __device__ __forceinline__ float inverse_length(int which) const {
    float square = 1e-6f;
#pragma unroll
    for (int w = 0; w < Map<kDim>::kStreamWarps; ++w) square += squares[which][w];
    return inverse_sqrt(square);
  }
  template <int kCount>
  __device__ __forceinline__ void sum_groups(int which, int column, float (&sum)[kCount]) const {
    float part[kGroups][kCount];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) load_lane(part[g], &sums[which][g][column]);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      sum[i] = ((part[0][i] + part[2][i]) + (part[1][i] + part[3][i])) +
               ((part[4][i] + part[6][i]) + (part[5][i] + part[7][i]));
  }
  template <int kCount>
  __device__ __forceinline__ void solve(int column, float (&u)[kCount]) const {  // u / |k|
    const float length = inverse_length(1), scale = length * beta;
    float seen[kCount], v[kCount];
    sum_groups(0, column, seen), load_lane(v, vectors[2] + column);
#pragma unroll
    for (int i = 0; i < kCount; ++i) u[i] = scale * fmaf(-length, seen[i], v[i]);
  }
};

// The block that comes `ahead` places later starts when this one is about half done: its state is asked into the L2, so
// that the memory does not pause while blocks compute. Called behind the block's own loads, which it must not delay. No
// effect before sm_90.
template <int kDim>
__device__ __forceinline__ void prefetch_state(const StepArguments& a, int row, int head, int ahead) {
  const int item = row * a.heads + head + ahead, later_row = item / a.heads;
  const int slot = later_row < a.rows ? a.slots[later_row] : -1;
  if (threadIdx.x == 0 && slot >= 0)
    prefetch_l2_bulk(a.state + (static_cast<std::int64_t>(slot) * a.heads + item - later_row * a.heads) * kDim * kDim,
                     kDim * kDim * sizeof(float));
}

template <int kDim, class E>
__global__ void __launch_bounds__(2 * kDim, kDim == 128 ? 2 : 4) decode_kernel(StepArguments a, int ahead) {
  constexpr int kKeys = Map<kDim>::kKeys, kLane = Map<kDim>::kLane, kAcross = kDim / 4;
  auto& s = *shared_memory<DecodeShared<kDim>>();
  await_previous_kernel();
  const int head = blockIdx.x, row = blockIdx.y, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int slot = a.slots[row], token = a.starts[row];
  if (slot < 0 || a.starts[row + 1] == token) return;
  const bool commit = !a.commit || a.commit[row] > 0;

  Stream<kDim, E> stream(a, head, thread);
  stream.read_window(slot);
  const Rows& rows = stream.which == 0 ? a.q : stream.which == 1 ? a.k : stream.which == 2 ? a.v : a.z;
  const Pair<E> raw = load_pair(at<E>(rows, token, head) + stream.channel);
  const float b = thread == 0 ? load1(at<E>(a.b, token, head)) : 0.f;
  float gate[kLane], weight[kLane];
  if (warp == 0) {
    load_lane(gate, at<E>(a.gate, token, head) + kLane * lane), load_lane(weight, a.norm_weight + kLane * lane);
  }
  const int group = thread / kAcross, column = thread % kAcross * 4, first = group * kKeys;
  float* state = a.state + ((static_cast<std::int64_t>(slot) * a.heads + head) * kDim + first) * kDim + column;
  float4 x[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) x[i] = load4(state + i * kDim);
  prefetch_state<kDim>(a, row, head, ahead);
  release_next_kernel();

  const float2 y = stream.which < 3 ? stream.convolve(widen(raw)) : stream.decays(widen(raw), a.lower_bound);
  *reinterpret_cast<float2*>(&s.vectors[stream.which][stream.channel]) = y;
  if (stream.which < 2) {
    const float square = sum_lanes(stream.square(y), Map<kDim>::kStreamLanes);
    if (lane % Map<kDim>::kStreamLanes == 0) s.squares[stream.which][thread % (kDim / 2) / 32] = square;
  }
  if (thread == 0) s.beta = gate_sigmoid(b);
  stream.shift(raw);
  if (commit) stream.store_window(slot);
  __syncthreads();

  float k_sums[4] = {}, q_sums[4] = {};
#pragma unroll
  for (int part = 0; part < kKeys; part += 4) {
    float q[4], k[4], decay[4];
    const int key = first + part;
    load_lane(q, s.vectors[0] + key), load_lane(k, s.vectors[1] + key), load_lane(decay, s.vectors[3] + key);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float4& v = x[part + i];
      v.x *= decay[i], v.y *= decay[i], v.z *= decay[i], v.w *= decay[i];
      k_sums[0] = fmaf(v.x, k[i], k_sums[0]), k_sums[1] = fmaf(v.y, k[i], k_sums[1]);
      k_sums[2] = fmaf(v.z, k[i], k_sums[2]), k_sums[3] = fmaf(v.w, k[i], k_sums[3]);
      q_sums[0] = fmaf(v.x, q[i], q_sums[0]), q_sums[1] = fmaf(v.y, q[i], q_sums[1]);
      q_sums[2] = fmaf(v.z, q[i], q_sums[2]), q_sums[3] = fmaf(v.w, q[i], q_sums[3]);
    }
  }
  store4(&s.sums[0][group][column], make_float4(k_sums[0], k_sums[1], k_sums[2], k_sums[3]));
  store4(&s.sums[1][group][column], make_float4(q_sums[0], q_sums[1], q_sums[2], q_sums[3]));
  __syncthreads();

  if (commit) {
    float u[4];
    s.solve(column, u);
#pragma unroll
    for (int part = 0; part < kKeys; part += 4) {
      float k[4];
      load_lane(k, s.vectors[1] + first + part);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 v = x[part + i];
        store4(state + (part + i) * kDim,
               make_float4(fmaf(k[i], u[0], v.x), fmaf(k[i], u[1], v.y), fmaf(k[i], u[2], v.z), fmaf(k[i], u[3], v.w)));
      }
    }
  }
  if (warp == 0) {
    float q[kLane], k[kLane], u[kLane], o[kLane];
    load_lane(q, s.vectors[0] + kLane * lane), load_lane(k, s.vectors[1] + kLane * lane);
    const float meet = dot_lanes(q, k), scale = s.inverse_length(0) * inverse_sqrt(static_cast<float>(kDim));
    s.solve(kLane * lane, u), s.sum_groups(1, kLane * lane, o);
#pragma unroll
    for (int i = 0; i < kLane; ++i) o[i] = scale * fmaf(meet, u[i], o[i]);
    store_output<kDim, E>(a, token, head, lane, o, gate, weight);
  }
}

}  // namespace

cudaError_t launch_decode(const StepArguments& a, cudaStream_t stream) {
  return dispatch(a.dim, a.type, [&]<int kDim, class E>() {
    return launch_chained(decode_kernel<kDim, E>, dim3(a.heads, a.rows), 2 * kDim, sizeof(DecodeShared<kDim>), stream,
                          a, multiprocessors());
  });
}

}  // namespace k3::cuda::kda::step_detail
