// The kernel of step.h, where formula, layout, thread map and costs are given.
#include "kernels/cuda/kda/step.h"

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/kda/dispatch.h"

namespace k3::cuda::kda {
namespace {

constexpr int kTaps = 4, kBatch = 8;  // tokens whose vectors are prepared together, between two barriers

template <int kDim>
struct Shared {
  float q[kBatch][kDim], k[kBatch][kDim], v[kBatch][kDim], decay[kBatch][kDim], o[kBatch][kDim];
  float past[kTaps - 1][3][kDim];        // raw values before the next batch, q, k, v
  float squares[kBatch][2 * kDim / 32];  // sums of squares of a warp's channels: q in the first half, k in the second
  float beta[kBatch];
};

__device__ __forceinline__ float sum_warp(float x) {
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) x += shuffle_xor(x, step);
  return x;
}

// The causal convolution of one channel: the three latest raw values and the taps.
template <class E>
struct Stream {
  float taps[kTaps], past[kTaps - 1];

  __device__ __forceinline__ void load_taps(const float* source) {
    const float4 t = load4(source);
    taps[0] = t.x, taps[1] = t.y, taps[2] = t.z, taps[3] = t.w;
  }
  __device__ __forceinline__ float push(float x) {
    const float sum = taps[0] * past[0] + taps[1] * past[1] + taps[2] * past[2] + taps[3] * x;
    past[0] = past[1], past[1] = past[2], past[2] = x;
    return round_to<E>(sum * sigmoid(sum));
  }
};

template <class E>
__device__ __forceinline__ const E* at(const Rows& rows, std::int64_t token, int head) {
  return static_cast<const E*>(rows.data) + token * rows.token_stride + head * rows.head_stride;
}

template <int kDim, class E>
__global__ void __launch_bounds__(2 * kDim, kDim == 128 ? 2 : 4) step_kernel(StepArguments a) {
  constexpr int kThreads = 2 * kDim, kWarps = kThreads / 32, kKeys = kDim / 8;  // keys of one thread
  Shared<kDim>& s = *shared_memory<Shared<kDim>>();
  const int head = blockIdx.x, row = blockIdx.y, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int slot = a.slots[row];
  if (slot < 0) return;
  const int first = a.starts[row], tokens = a.starts[row + 1] - first,
            commit = a.commit ? min(a.commit[row], tokens) : tokens;

  // key(i) = 32 (i / 4) + 4 key_group + i % 4; value columns column .. column + 3
  const int key_group = lane / 4, column = 16 * warp + 4 * (lane % 4);
  float* state = a.state + (static_cast<std::int64_t>(slot) * a.heads + head) * kDim * kDim + column;
  const auto key_of = [&](int i) { return 32 * (i / 4) + 4 * key_group + i % 4; };
  float4 s_part[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) s_part[i] = *reinterpret_cast<const float4*>(state + key_of(i) * kDim);
  const auto write_state = [&] {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) *reinterpret_cast<float4*>(state + key_of(i) * kDim) = s_part[i];
  };

  // The first kDim threads prepare q and the decay of their channel, the others k and v. Nobody else touches a
  // channel's window.
  const bool front = thread < kDim;
  const int channel = thread % kDim;
  const std::int64_t width = static_cast<std::int64_t>(a.heads) * kDim,
                     own = static_cast<std::int64_t>(head) * kDim + channel;
  E* window = static_cast<E*>(a.window) + static_cast<std::int64_t>(slot) * (kTaps - 1) * 3 * width + own;
  const float scale = inverse_sqrt(static_cast<float>(kDim));

  for (int begin = 0; begin < tokens; begin += kBatch) {
    const int count = min(kBatch, tokens - begin);
    // One stream of raw values of this thread's channel: which = 0, 1, 2 for q, k, v; use(t, y) takes the outputs.
    const auto convolve = [&](int which, const Rows& raw, auto use) {
      Stream<E> stream;
      stream.load_taps(a.taps + (which * width + own) * kTaps);
#pragma unroll
      for (int i = 0; i < kTaps - 1; ++i)
        stream.past[i] = begin == 0 ? load1(window + (i * 3 + which) * width) : s.past[i][which][channel];
      for (int t = 0; t < count; ++t) {
        use(t, stream.push(load1(at<E>(raw, first + begin + t, head) + channel)));
        if (begin + t + 1 == commit)
#pragma unroll
          for (int i = 0; i < kTaps - 1; ++i) store1(window + (i * 3 + which) * width, stream.past[i]);
      }
#pragma unroll
      for (int i = 0; i < kTaps - 1; ++i) s.past[i][which][channel] = stream.past[i];
    };
    convolve(front ? 0 : 1, front ? a.q : a.k, [&](int t, float y) {
      (front ? s.q : s.k)[t][channel] = y;
      const float square = sum_warp(y * y);
      if (lane == 0) s.squares[t][warp] = square;
    });
    if (front) {
      const float speed = fast_exp(a.a_log[head]), bias = a.dt_bias[own];
      for (int t = 0; t < count; ++t) {
        const float logit = load1(at<E>(a.z, first + begin + t, head) + channel) + bias;
        s.decay[t][channel] =
            fast_exp(a.lower_bound != 0.f ? a.lower_bound * sigmoid(speed * logit) : -speed * softplus(logit));
      }
    } else {
      convolve(2, a.v, [&](int t, float y) { s.v[t][channel] = y; });
    }
    if (thread < count) s.beta[thread] = sigmoid(load1(at<E>(a.b, first + begin + thread, head)));
    __syncthreads();

    for (int t = 0; t < count; ++t) {
      float q_square = 1e-6f, k_square = 1e-6f;
#pragma unroll
      for (int w = 0; w < kWarps / 2; ++w) q_square += s.squares[t][w], k_square += s.squares[t][kWarps / 2 + w];
      const float q_length = scale * inverse_sqrt(q_square), k_length = inverse_sqrt(k_square);
      float sums[8] = {};  // D^T k for the four columns, then D^T q
      float meet = 0.f;    // this thread's share of k . q
#pragma unroll
      for (int part = 0; part < kKeys / 4; ++part) {
        const int key = 32 * part + 4 * key_group;
        const float4 q4 = *reinterpret_cast<const float4*>(&s.q[t][key]),
                     k4 = *reinterpret_cast<const float4*>(&s.k[t][key]);
        const float4 d4 = *reinterpret_cast<const float4*>(&s.decay[t][key]);
        const float q[4] = {q4.x, q4.y, q4.z, q4.w}, k[4] = {k4.x, k4.y, k4.z, k4.w},
                    decay[4] = {d4.x, d4.y, d4.z, d4.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float4& x = s_part[4 * part + i];
          x.x *= decay[i], x.y *= decay[i], x.z *= decay[i], x.w *= decay[i];
          sums[0] += x.x * k[i], sums[1] += x.y * k[i], sums[2] += x.z * k[i], sums[3] += x.w * k[i];
          sums[4] += x.x * q[i], sums[5] += x.y * q[i], sums[6] += x.z * q[i], sums[7] += x.w * q[i];
          meet += k[i] * q[i];
        }
      }
      // Sum over the eight key groups: each exchange halves the sums a lane carries; key group m ends with sum m.
      const auto fold = [&](int width) {
        const bool upper = key_group & width;
        for (int i = 0; i < width; ++i) {
          const float kept = upper ? sums[i + width] : sums[i], sent = upper ? sums[i] : sums[i + width];
          sums[i] = kept + shuffle_xor(sent, 4 * width);
        }
      };
      fold(4), fold(2), fold(1);
#pragma unroll
      for (int step = 4; step <= 16; step *= 2) meet += shuffle_xor(meet, step);
      const float4 v4 = *reinterpret_cast<const float4*>(&s.v[t][column]);
      const float v[4] = {v4.x, v4.y, v4.z, v4.w}, beta = s.beta[t];
      float u[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        u[i] = k_length * beta * (v[i] - k_length * shuffle(sums[0], 4 * i + lane % 4));  // u, times 1 / |k|
#pragma unroll
      for (int part = 0; part < kKeys / 4; ++part) {
        const float4 k4 = *reinterpret_cast<const float4*>(&s.k[t][32 * part + 4 * key_group]);
        const float k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float4& x = s_part[4 * part + i];
          x.x += k[i] * u[0], x.y += k[i] * u[1], x.z += k[i] * u[2], x.w += k[i] * u[3];
        }
      }
      if (key_group >= 4) {
        const int i = key_group - 4;
        const float own = i == 0 ? u[0] : i == 1 ? u[1] : i == 2 ? u[2] : u[3];
        s.o[t][column + i] = q_length * (sums[0] + meet * own);
      }
      if (begin + t + 1 == commit) write_state();
    }
    __syncthreads();

    for (int t = warp; t < count; t += kWarps) {
      const std::int64_t token = first + begin + t;
      float o[kDim / 32], square = 0.f;
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) o[i] = s.o[t][32 * i + lane], square += o[i] * o[i];
      const float length = inverse_sqrt(sum_warp(square) / kDim + a.norm_eps);
      E* y = static_cast<E*>(a.y.data) + token * a.y.token_stride + head * a.y.head_stride;
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i)
        store1(y + 32 * i + lane, o[i] * length * a.norm_weight[32 * i + lane] *
                                      sigmoid(load1(at<E>(a.gate, token, head) + 32 * i + lane)));
    }
    // The next batch may overwrite q, k, v, decay at once (they were last read before the barrier); o is rewritten
    // only behind its barrier.
  }
}

}  // namespace

cudaError_t step(const StepArguments& a, cudaStream_t stream) {
  if (a.rows < 0 || a.rows > 65535 || a.heads <= 0 || (a.dim != 32 && a.dim != 64 && a.dim != 128))
    return cudaErrorInvalidValue;
  if (a.rows == 0) return cudaSuccess;
  for (const void* p :
       {static_cast<const void*>(a.starts), static_cast<const void*>(a.slots), a.q.data, a.k.data, a.v.data, a.z.data,
        a.b.data, a.gate.data, static_cast<const void*>(a.taps), static_cast<const void*>(a.a_log),
        static_cast<const void*>(a.dt_bias), static_cast<const void*>(a.norm_weight), static_cast<const void*>(a.state),
        static_cast<const void*>(a.window), static_cast<const void*>(a.y.data)})
    if (!p) return cudaErrorInvalidValue;
  if (reinterpret_cast<std::uintptr_t>(a.state) % 16 != 0 || reinterpret_cast<std::uintptr_t>(a.taps) % 16 != 0)
    return cudaErrorInvalidValue;
  return dispatch(a.dim, a.type, [&]<int kDim, class E>() {
    return launch(step_kernel<kDim, E>, dim3(a.heads, a.rows), 2 * kDim, sizeof(Shared<kDim>), stream, a);
  });
}

}  // namespace k3::cuda::kda
