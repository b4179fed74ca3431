// KDA through the CUDA kernels of src/kernels/cuda/kda, forward and backward. bf16 values take bf16 queries and keys too (rounding the
// normalised vectors, as fla and FlashKDA do); fp32 values stay fp32. The output and the states are fp32.
#pragma once

#include "ops/kda/kda.h"

namespace k3::ops {

// True when the kernels are in this build and take these tensors: CUDA, bf16 or fp32 values, dim 32, 64 or 128.
bool kda_cuda_takes(const KdaInputs& inputs);

KdaResult kda_cuda(const KdaInputs& inputs, const RowPlan& plan, const Tensor& initial_state);

}  // namespace k3::ops
