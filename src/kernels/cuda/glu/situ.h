// SiTU-GLU on CUDA: y = b tanh(g / b) sigmoid(g) * c tanh(u / c), c = 0: u uncapped. Source: checkpoint.md 3.4, training.md 1.8.
// Layout: gate, up, y and their gradients contiguous, `count` elements (a multiple of 4), fp32 or bf16. Computed in fp32, rounded once.
// Bytes an element: forward 3, backward 5 values. No torch, no allocation.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace k3::cuda::situ {

struct Glu {
  std::int64_t count = 0;
  bool bf16 = true;
  float beta = 4.f, linear_beta = 25.f;
};

cudaError_t forward(const Glu& glu, const void* gate, const void* up, void* y, cudaStream_t stream);
cudaError_t backward(const Glu& glu, const void* gate, const void* up, const void* dy, void* d_gate, void* d_up, cudaStream_t stream);

}  // namespace k3::cuda::situ
