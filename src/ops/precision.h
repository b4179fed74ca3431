// Precision islands: norms, gates, softmax, routing and the KDA state are computed in fp32 for bf16 and fp32 inputs and in fp64 for
// fp64 inputs, then rounded once (docs/numerics.md).
#pragma once

#include "base/tensor.h"

namespace k3::ops {

inline at::ScalarType wide_type(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }
inline Tensor wide(const Tensor& x) { return x.to(wide_type(x)); }

}  // namespace k3::ops
