#include "kernels/cuda/attn_res/attn_res.h"

#include <algorithm>

#include "kernels/cuda/common/vector4.cuh"

namespace k3::cuda::attn_res {
namespace {

constexpr int kLanes = 32;
constexpr int kStride = 4 * kLanes;       // elements a warp covers in one go
constexpr int kSharedBytes = 48 * 1024;   // static limit: one row of dquery a warp must fit
constexpr int kMaxBlocks = 132 * 8;

int warps_of(int hidden) { return std::clamp(kSharedBytes / (hidden * static_cast<int>(sizeof(float))), 1, 4); }
int blocks_of(const Mix& mix) {
  const int warps = warps_of(mix.hidden);
  return static_cast<int>(std::min<std::int64_t>((mix.tokens + warps - 1) / warps, kMaxBlocks));
}

// p and r of one token, the same in every lane.
template <class T, int kSources>
__device__ void weigh(const Mix& mix, std::int64_t token, int lane, float (&p)[kSources], float (&r)[kSources], float (&dot)[kSources]) {
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kSources; ++i) {
    const T* v = static_cast<const T*>(mix.values[i]) + token * mix.hidden;
    float squares = 0, product = 0;
    for (int d = 4 * lane; d < mix.hidden; d += kStride) {
      const float4 x = load4(v + d);
      squares += dot4(x, x);
      product += dot4(x, load4(mix.query + d));
    }
    r[i] = rsqrtf(warp_sum(squares) / mix.hidden + mix.eps);
    dot[i] = warp_sum(product);
    largest = fmaxf(largest, dot[i] * r[i]);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSources; ++i) sum += p[i] = expf(dot[i] * r[i] - largest);
#pragma unroll
  for (int i = 0; i < kSources; ++i) p[i] /= sum;
}

template <class T, int kSources>
__global__ void forward_kernel(Mix mix, T* out) {
  const int lane = threadIdx.x % kLanes, warps = blockDim.x / kLanes;
  for (std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / kLanes; token < mix.tokens;
       token += static_cast<std::int64_t>(gridDim.x) * warps) {
    float p[kSources], r[kSources], dot[kSources];
    weigh<T, kSources>(mix, token, lane, p, r, dot);
    for (int d = 4 * lane; d < mix.hidden; d += kStride) {
      float4 sum = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < kSources; ++i) sum = sum + p[i] * load4(static_cast<const T*>(mix.values[i]) + token * mix.hidden + d);
      store4(out + token * mix.hidden + d, sum);
    }
  }
}

struct Gradients {
  void* values[kMaxSources];
};

template <class T, int kSources>
__global__ void backward_kernel(Mix mix, const T* d_out, Gradients gradients, float* d_query_parts) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes, warps = blockDim.x / kLanes;
  float* d_query = shared + warp * mix.hidden;  // each lane owns its elements
  for (int d = 4 * lane; d < mix.hidden; d += kStride) store4(d_query + d, {0, 0, 0, 0});
  for (std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * warps + warp; token < mix.tokens;
       token += static_cast<std::int64_t>(gridDim.x) * warps) {
    const std::int64_t row = token * mix.hidden;
    float p[kSources], r[kSources], dot[kSources], e[kSources];
    weigh<T, kSources>(mix, token, lane, p, r, dot);
    float mean = 0;
#pragma unroll
    for (int i = 0; i < kSources; ++i) {
      float product = 0;
      for (int d = 4 * lane; d < mix.hidden; d += kStride)
        product += dot4(load4(static_cast<const T*>(mix.values[i]) + row + d), load4(d_out + row + d));
      e[i] = warp_sum(product);
      mean += p[i] * e[i];
    }
    for (int d = 4 * lane; d < mix.hidden; d += kStride) {
      const float4 dh = load4(d_out + row + d), query = load4(mix.query + d);
      float4 sum = load4(d_query + d);
#pragma unroll
      for (int i = 0; i < kSources; ++i) {
        const float4 v = load4(static_cast<const T*>(mix.values[i]) + row + d);
        const float a = p[i] * (e[i] - mean) * r[i];  // ds_i r_i
        const float b = a * r[i] * r[i] * dot[i] / mix.hidden;
        store4(static_cast<T*>(gradients.values[i]) + row + d, p[i] * dh + a * query + (-b) * v);
        sum = sum + a * v;
      }
      store4(d_query + d, sum);
    }
  }
  __syncthreads();
  for (int d = threadIdx.x; d < mix.hidden; d += blockDim.x) {
    float sum = 0;
    for (int other = 0; other < warps; ++other) sum += shared[other * mix.hidden + d];
    d_query_parts[static_cast<std::int64_t>(blockIdx.x) * mix.hidden + d] = sum;
  }
}

template <class T, int kSources = 2>
cudaError_t launch_forward(const Mix& mix, void* out, cudaStream_t stream) {
  if constexpr (kSources > kMaxSources) {
    return cudaErrorInvalidValue;
  } else {
    if (mix.sources != kSources) return launch_forward<T, kSources + 1>(mix, out, stream);
    forward_kernel<T, kSources><<<blocks_of(mix), warps_of(mix.hidden) * kLanes, 0, stream>>>(mix, static_cast<T*>(out));
    return cudaGetLastError();
  }
}

template <class T, int kSources = 2>
cudaError_t launch_backward(const Mix& mix, const void* d_out, const Gradients& gradients, float* parts, cudaStream_t stream) {
  if constexpr (kSources > kMaxSources) {
    return cudaErrorInvalidValue;
  } else {
    if (mix.sources != kSources) return launch_backward<T, kSources + 1>(mix, d_out, gradients, parts, stream);
    const int warps = warps_of(mix.hidden);
    backward_kernel<T, kSources><<<blocks_of(mix), warps * kLanes, warps * mix.hidden * sizeof(float), stream>>>(
        mix, static_cast<const T*>(d_out), gradients, parts);
    return cudaGetLastError();
  }
}

bool allowed(const Mix& mix) {
  return mix.hidden > 0 && mix.hidden % 4 == 0 && mix.hidden * static_cast<int>(sizeof(float)) <= kSharedBytes && mix.sources >= 2 &&
         mix.sources <= kMaxSources;
}

}  // namespace

cudaError_t forward(const Mix& mix, void* out, cudaStream_t stream) {
  if (!allowed(mix)) return cudaErrorInvalidValue;
  if (mix.tokens == 0) return cudaSuccess;
  return mix.bf16 ? launch_forward<__nv_bfloat16>(mix, out, stream) : launch_forward<float>(mix, out, stream);
}

int backward_parts(const Mix& mix) { return blocks_of(mix); }

cudaError_t backward(const Mix& mix, const void* d_out, void* const d_values[kMaxSources], float* d_query_parts, cudaStream_t stream) {
  if (!allowed(mix)) return cudaErrorInvalidValue;
  if (mix.tokens == 0) return cudaSuccess;
  Gradients gradients{};
  std::copy(d_values, d_values + mix.sources, gradients.values);
  return mix.bf16 ? launch_backward<__nv_bfloat16>(mix, d_out, gradients, d_query_parts, stream)
                  : launch_backward<float>(mix, d_out, gradients, d_query_parts, stream);
}

}  // namespace k3::cuda::attn_res
