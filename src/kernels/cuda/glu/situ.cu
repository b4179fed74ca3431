#include "kernels/cuda/glu/situ.h"

#include "kernels/cuda/common/vector4.cuh"

namespace k3::cuda::situ {
namespace {

constexpr int kThreads = 256;

struct Branches {
  float gate, d_gate;  // b tanh(g / b) sigmoid(g) and its derivative
  float up, d_up;      // c tanh(u / c) and its derivative
};

__device__ __forceinline__ Branches branches(float g, float u, float beta, float linear_beta) {
  const float t = tanhf(g / beta), s = 1.f / (1.f + expf(-g));
  Branches result{beta * t * s, (1.f - t * t) * s + beta * t * s * (1.f - s), u, 1.f};
  if (linear_beta > 0.f) {
    const float tu = tanhf(u / linear_beta);
    result.up = linear_beta * tu;
    result.d_up = 1.f - tu * tu;
  }
  return result;
}

template <class T>
__global__ void forward_kernel(Glu glu, const T* gate, const T* up, T* y) {
  const std::int64_t at = 4 * (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x);
  if (at >= glu.count) return;
  const float4 g = load4(gate + at), u = load4(up + at);
  const auto value = [&](float gi, float ui) {
    const Branches b = branches(gi, ui, glu.beta, glu.linear_beta);
    return b.gate * b.up;
  };
  store4(y + at, {value(g.x, u.x), value(g.y, u.y), value(g.z, u.z), value(g.w, u.w)});
}

template <class T>
__global__ void backward_kernel(Glu glu, const T* gate, const T* up, const T* dy, T* d_gate, T* d_up) {
  const std::int64_t at = 4 * (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x);
  if (at >= glu.count) return;
  const float4 g = load4(gate + at), u = load4(up + at), d = load4(dy + at);
  float4 dg, du;
  const auto differentiate = [&](float gi, float ui, float di, float& dgi, float& dui) {
    const Branches b = branches(gi, ui, glu.beta, glu.linear_beta);
    dgi = di * b.up * b.d_gate;
    dui = di * b.gate * b.d_up;
  };
  differentiate(g.x, u.x, d.x, dg.x, du.x);
  differentiate(g.y, u.y, d.y, dg.y, du.y);
  differentiate(g.z, u.z, d.z, dg.z, du.z);
  differentiate(g.w, u.w, d.w, dg.w, du.w);
  store4(d_gate + at, dg);
  store4(d_up + at, du);
}

int blocks(const Glu& glu) { return static_cast<int>((glu.count / 4 + kThreads - 1) / kThreads); }

template <class T>
cudaError_t run_forward(const Glu& glu, const void* gate, const void* up, void* y, cudaStream_t stream) {
  forward_kernel<T><<<blocks(glu), kThreads, 0, stream>>>(glu, static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(y));
  return cudaGetLastError();
}

template <class T>
cudaError_t run_backward(const Glu& glu, const void* gate, const void* up, const void* dy, void* d_gate, void* d_up, cudaStream_t stream) {
  backward_kernel<T><<<blocks(glu), kThreads, 0, stream>>>(glu, static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<const T*>(dy),
                                                           static_cast<T*>(d_gate), static_cast<T*>(d_up));
  return cudaGetLastError();
}

}  // namespace

cudaError_t forward(const Glu& glu, const void* gate, const void* up, void* y, cudaStream_t stream) {
  if (glu.count % 4 != 0) return cudaErrorInvalidValue;
  if (glu.count == 0) return cudaSuccess;
  return glu.bf16 ? run_forward<__nv_bfloat16>(glu, gate, up, y, stream) : run_forward<float>(glu, gate, up, y, stream);
}

cudaError_t backward(const Glu& glu, const void* gate, const void* up, const void* dy, void* d_gate, void* d_up, cudaStream_t stream) {
  if (glu.count % 4 != 0) return cudaErrorInvalidValue;
  if (glu.count == 0) return cudaSuccess;
  return glu.bf16 ? run_backward<__nv_bfloat16>(glu, gate, up, dy, d_gate, d_up, stream) : run_backward<float>(glu, gate, up, dy, d_gate, d_up, stream);
}

}  // namespace k3::cuda::situ
