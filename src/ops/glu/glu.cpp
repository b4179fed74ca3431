#include "ops/glu/glu.h"

#include "ops/glu/glu_cuda.h"
#include "ops/precision.h"

namespace k3::ops {

Tensor glu(const Tensor& gate, const Tensor& up, const Glu& options) {
  if (!options.situ) return at::silu(gate) * up;
  if (situ_cuda_takes(gate)) return situ_cuda(gate, up, options);
  const Tensor wide_gate = wide(gate);
  const Tensor wide_up = wide(up);
  const Tensor capped_gate = options.beta * at::tanh(wide_gate / options.beta) * at::sigmoid(wide_gate);
  const Tensor capped_up =
      options.linear_beta > 0 ? options.linear_beta * at::tanh(wide_up / options.linear_beta) : wide_up;
  return (capped_gate * capped_up).to(gate.scalar_type());
}

}  // namespace k3::ops
