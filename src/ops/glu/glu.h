// Gated activations. SiTU-GLU (K3): b tanh(g / b) sigmoid(g) * c tanh(u / c), computed in fp32, rounded once; c = 0 leaves the up
// branch uncapped. SwiGLU (Kimi-Linear): silu(g) * u, rounded after silu as the published torch code does. Source: checkpoint.md 3.4.
#pragma once

#include "base/tensor.h"

namespace k3::ops {

struct Glu {
  bool situ = true;
  double beta = 4.0;         // gate soft-cap
  double linear_beta = 25.0; // up soft-cap; 0: none
};

Tensor glu(const Tensor& gate, const Tensor& up, const Glu& options);  // same shapes

}  // namespace k3::ops
