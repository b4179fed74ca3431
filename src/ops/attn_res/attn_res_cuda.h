// attn_res_mix through src/kernels/cuda/attn_res: one kernel forward, one backward, nothing kept but the inputs.
#pragma once

#include <vector>

#include "base/tensor.h"

namespace k3::ops {

bool attn_res_cuda_takes(const std::vector<Tensor>& sources);
Tensor attn_res_cuda(const std::vector<Tensor>& sources, const Tensor& query, double eps);  // query = norm * proj, fp32 [hidden]

}  // namespace k3::ops
