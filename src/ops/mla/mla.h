// Multi-head latent attention without positions (NoPE): score = (qn . kn + qp . kp) (nope + rope)^-1/2, causal, softmax in fp32.
// qn, qp are the two parts of a query head; kn and the values come out of the normed latent through kv_b; the shared key kp serves
// all heads and is neither normed nor rotated. Sources: checkpoint.md 3.3, kernels.md 6.
// Layout: q [tokens, heads, nope + rope]; latent [keys, kv_lora + rope] (normed latent, then kp), one row's keys in order of position;
// kv_b [heads, nope + value, kv_lora]; result [tokens, heads, value].
#pragma once

#include "base/tensor.h"
#include "ops/rows.h"

namespace k3::ops {

struct MlaShape {
  std::int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;
};

// Expanded form for training: every row attends to its own tokens only; latent is packed like q. Differentiable.
Tensor mla_packed(const Tensor& q, const Tensor& latent, const Tensor& kv_b, const MlaShape& shape, const RowPlan& plan);

// Expanded form for one row that continues a context: latent holds context + tokens keys; query i sees the first context + i + 1.
Tensor mla_expanded(const Tensor& q, const Tensor& latent, const Tensor& kv_b, const MlaShape& shape);

// Absorbed form of the same: kv_b is applied to queries and outputs instead of keys and values, so a step costs one pass over the latent.
Tensor mla_absorbed(const Tensor& q, const Tensor& latent, const Tensor& kv_b, const MlaShape& shape);

}  // namespace k3::ops
