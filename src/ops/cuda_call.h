// What every wrapper of a CUDA kernel needs: the current stream, the device guard and checked calls. Only for builds with K3_WITH_CUDA.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "base/tensor.h"

namespace k3::ops {

// True for dtypes that the kernels take: bf16 and fp32.
inline bool kernel_dtype(const Tensor& x) { return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat; }
inline bool is_bf16(const Tensor& x) { return x.scalar_type() == at::kBFloat16; }
inline cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream(); }

}  // namespace k3::ops
