#include "ops/norm/norm.h"

#include "ops/precision.h"

namespace k3::ops {
namespace {

Tensor normalised(const Tensor& wide_x, double eps) {
  return wide_x * at::rsqrt(wide_x.square().mean(-1, true) + eps);
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  // One kernel on a GPU; it multiplies by the weight before its only rounding.
  if (x.is_cuda()) return std::get<0>(at::_fused_rms_norm(x, weight.sizes(), weight.to(x.scalar_type()), eps));
  return normalised(wide(x), eps).to(x.scalar_type()) * weight.to(x.scalar_type());
}

Tensor l2_norm(const Tensor& x, double eps) {
  const Tensor wide_x = wide(x);
  return wide_x * at::rsqrt(wide_x.square().sum(-1, true) + eps);
}

Tensor gated_rms_norm(const Tensor& o, const Tensor& gate, const Tensor& weight, double eps) {
  const Tensor wide_gate = wide(gate);
  const Tensor y = normalised(o.to(wide_gate.scalar_type()), eps) * weight.to(wide_gate.scalar_type());
  return (y * at::sigmoid(wide_gate)).to(gate.scalar_type());
}

}  // namespace k3::ops
