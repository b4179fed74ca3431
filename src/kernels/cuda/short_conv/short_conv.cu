#include "kernels/cuda/short_conv/short_conv.h"

#include <algorithm>

#include "kernels/cuda/common/vector4.cuh"

namespace k3::cuda::short_conv {
namespace {

constexpr int kThreads = 64;
constexpr float4 kZero = {0, 0, 0, 0};

struct Taps {
  float4 of[kTaps];  // [tap] for four channels
};

__device__ __forceinline__ Taps load_taps(const float* taps, int channel) {
  float4 rows[4];
  for (int i = 0; i < 4; ++i) rows[i] = load4(taps + (channel + i) * kTaps);
  return {{{rows[0].x, rows[1].x, rows[2].x, rows[3].x},
           {rows[0].y, rows[1].y, rows[2].y, rows[3].y},
           {rows[0].z, rows[1].z, rows[2].z, rows[3].z},
           {rows[0].w, rows[1].w, rows[2].w, rows[3].w}}};
}

__device__ __forceinline__ float4 times(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ __forceinline__ float silu(float c) { return c / (1.f + expf(-c)); }
__device__ __forceinline__ float d_silu(float c) {
  const float s = 1.f / (1.f + expf(-c));
  return s * (1.f + c * (1.f - s));
}

// window[j] = u[t - 3 + j]; what lies before the row's start counts as zero.
__device__ __forceinline__ float4 convolve(const Taps& taps, const float4 (&window)[kTaps], int position) {
  float4 sum = kZero;
#pragma unroll
  for (int j = 0; j < kTaps; ++j)
    if (position >= kTaps - 1 - j) sum = sum + times(taps.of[j], window[j]);
  return sum;
}

template <class T>
__device__ __forceinline__ float4 load_row(const T* u, std::int64_t token, std::int64_t tokens, int channels, int channel) {
  return token >= 0 && token < tokens ? load4(u + token * channels + channel) : kZero;
}

template <class T>
__global__ void forward_kernel(Conv conv, T* y) {
  const int channel = 4 * (blockIdx.y * kThreads + threadIdx.x);
  if (channel >= conv.channels) return;
  const T* u = static_cast<const T*>(conv.u);
  const Taps taps = load_taps(conv.taps, channel);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kStrip, last = min(first + kStrip, conv.tokens);
  float4 window[kTaps];
  for (int j = 1; j < kTaps; ++j) window[j] = load_row(u, first - kTaps + j, conv.tokens, conv.channels, channel);
  for (std::int64_t token = first; token < last; ++token) {
    for (int j = 0; j + 1 < kTaps; ++j) window[j] = window[j + 1];
    window[kTaps - 1] = load_row(u, token, conv.tokens, conv.channels, channel);
    const float4 c = convolve(taps, window, conv.positions[token]);
    store4(y + token * conv.channels + channel, {silu(c.x), silu(c.y), silu(c.z), silu(c.w)});
  }
}

template <class T>
__global__ void backward_kernel(Conv conv, const T* dy, T* du, float* d_taps_parts) {
  const int channel = 4 * (blockIdx.y * kThreads + threadIdx.x);
  if (channel >= conv.channels) return;
  const T* u = static_cast<const T*>(conv.u);
  const Taps taps = load_taps(conv.taps, channel);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kStrip, last = min(first + kStrip, conv.tokens);
  float4 window[kTaps], dc[kTaps];  // dc[m] = gradient of c[token - 3 + m]
  int position[kTaps];              // of the same tokens; -1 past the end
  float4 d_taps[kTaps];
  for (int j = 0; j < kTaps; ++j) {
    d_taps[j] = kZero;
    dc[j] = kZero;
    position[j] = -1;
    if (j > 0) window[j] = load_row(u, first - kTaps + j, conv.tokens, conv.channels, channel);
  }
  // Three tokens more than the strip: du of a token needs dc of the three that follow.
  for (std::int64_t token = first; token < last + kTaps - 1; ++token) {
    for (int j = 0; j + 1 < kTaps; ++j) {
      window[j] = window[j + 1];
      dc[j] = dc[j + 1];
      position[j] = position[j + 1];
    }
    const bool inside = token < conv.tokens;
    window[kTaps - 1] = load_row(u, token, conv.tokens, conv.channels, channel);
    position[kTaps - 1] = inside ? conv.positions[token] : -1;
    dc[kTaps - 1] = kZero;
    if (inside) {
      const float4 c = convolve(taps, window, position[kTaps - 1]), d = load4(dy + token * conv.channels + channel);
      dc[kTaps - 1] = {d.x * d_silu(c.x), d.y * d_silu(c.y), d.z * d_silu(c.z), d.w * d_silu(c.w)};
      if (token < last)
        for (int j = 0; j < kTaps; ++j)
          if (position[kTaps - 1] >= kTaps - 1 - j) d_taps[j] = d_taps[j] + times(dc[kTaps - 1], window[j]);
    }
    const std::int64_t target = token - (kTaps - 1);
    if (target < first) continue;
    float4 sum = kZero;
    for (int m = 0; m < kTaps; ++m)
      if (position[m] >= m) sum = sum + times(taps.of[kTaps - 1 - m], dc[m]);  // u[target] reaches c[target + m]
    store4(du + target * conv.channels + channel, sum);
  }
  float* parts = d_taps_parts + (static_cast<std::int64_t>(blockIdx.x) * conv.channels + channel) * kTaps;
  store4(parts, {d_taps[0].x, d_taps[1].x, d_taps[2].x, d_taps[3].x});
  store4(parts + 4, {d_taps[0].y, d_taps[1].y, d_taps[2].y, d_taps[3].y});
  store4(parts + 8, {d_taps[0].z, d_taps[1].z, d_taps[2].z, d_taps[3].z});
  store4(parts + 12, {d_taps[0].w, d_taps[1].w, d_taps[2].w, d_taps[3].w});
}

dim3 grid(const Conv& conv) {
  return {static_cast<unsigned>(strips(conv)), static_cast<unsigned>((conv.channels / 4 + kThreads - 1) / kThreads)};
}

template <class T>
cudaError_t run_forward(const Conv& conv, void* y, cudaStream_t stream) {
  forward_kernel<T><<<grid(conv), kThreads, 0, stream>>>(conv, static_cast<T*>(y));
  return cudaGetLastError();
}

template <class T>
cudaError_t run_backward(const Conv& conv, const void* dy, void* du, float* parts, cudaStream_t stream) {
  backward_kernel<T><<<grid(conv), kThreads, 0, stream>>>(conv, static_cast<const T*>(dy), static_cast<T*>(du), parts);
  return cudaGetLastError();
}

}  // namespace

std::int64_t strips(const Conv& conv) { return (conv.tokens + kStrip - 1) / kStrip; }

cudaError_t forward(const Conv& conv, void* y, cudaStream_t stream) {
  if (conv.channels % 4 != 0) return cudaErrorInvalidValue;
  if (conv.tokens == 0) return cudaSuccess;
  return conv.bf16 ? run_forward<__nv_bfloat16>(conv, y, stream) : run_forward<float>(conv, y, stream);
}

cudaError_t backward(const Conv& conv, const void* dy, void* du, float* d_taps_parts, cudaStream_t stream) {
  if (conv.channels % 4 != 0) return cudaErrorInvalidValue;
  if (conv.tokens == 0) return cudaSuccess;
  return conv.bf16 ? run_backward<__nv_bfloat16>(conv, dy, du, d_taps_parts, stream) : run_backward<float>(conv, dy, du, d_taps_parts, stream);
}

}  // namespace k3::cuda::short_conv
