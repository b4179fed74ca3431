// RMSNorm and L2 normalisation along the last axis. Source: checkpoint.md 3.1, 3.2 step 3 and step 8.
// Statistics in fp32 (fp64 for fp64 inputs). RMSNorm rounds to the dtype of x before the weight is applied, as the published code does.
#pragma once

#include "base/tensor.h"

namespace k3::ops {

// y = weight * round(x * rsqrt(mean(x^2) + eps)); x [..., dim], weight [dim].
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);

// x / sqrt(sum(x^2) + eps); result stays wide (fp32 or fp64).
Tensor l2_norm(const Tensor& x, double eps);

// KDA output: rms_norm(o) * weight * sigmoid(gate) in one fp32 island, rounded once to the dtype of gate.
// o, gate [tokens, heads, dim]; weight [dim], shared by all heads. The order is norm, weight, sigmoid.
Tensor gated_rms_norm(const Tensor& o, const Tensor& gate, const Tensor& weight, double eps);

}  // namespace k3::ops
