// SiTU-GLU through src/kernels/cuda/glu: one kernel forward, one backward.
#pragma once

#include "ops/glu/glu.h"

namespace k3::ops {

bool situ_cuda_takes(const Tensor& gate);
Tensor situ_cuda(const Tensor& gate, const Tensor& up, const Glu& options);

}  // namespace k3::ops
