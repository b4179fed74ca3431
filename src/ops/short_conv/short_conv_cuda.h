// short_conv from nothing (no window) through src/kernels/cuda/short_conv: one kernel forward, one backward.
#pragma once

#include "base/tensor.h"

namespace k3::ops {

bool short_conv_cuda_takes(const Tensor& u, const Tensor& taps);
Tensor short_conv_cuda(const Tensor& u, const Tensor& taps, const Tensor& positions);  // positions int32 [tokens]: distance to the row's start

}  // namespace k3::ops
