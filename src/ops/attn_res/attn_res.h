// Block Attention Residuals: each sublayer reads a mix over depth of the finished blocks and the running prefix.
// k_i = v_i rsqrt(mean(v_i^2) + eps), s_i = sum_d k_i[d] norm[d] proj[d], p = softmax over i, result = sum_i p_i v_i (the raw v_i).
// Per token; fp32 island (fp64 for fp64), rounded once. Source: checkpoint.md 3.7, report section 2.2.
#pragma once

#include <vector>

#include "base/tensor.h"

namespace k3::ops {

// sources: [tokens, hidden] each, the prefix last; norm, proj [hidden].
Tensor attn_res_mix(const std::vector<Tensor>& sources, const Tensor& norm, const Tensor& proj, double eps);

}  // namespace k3::ops
