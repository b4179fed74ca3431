#include "ops/glu/glu_cuda.h"

#include "base/autograd_function.h"
#include "base/error.h"

#ifdef K3_WITH_CUDA

#include "kernels/cuda/glu/situ.h"
#include "ops/cuda_call.h"

namespace k3::ops {
namespace {

namespace kernel = k3::cuda::situ;

kernel::Glu describe(const Tensor& gate, double beta, double linear_beta) {
  return {gate.numel(), is_bf16(gate), static_cast<float>(beta), static_cast<float>(linear_beta)};
}

struct SituFunction : torch::autograd::Function<SituFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& gate, const Tensor& up, double beta, double linear_beta) {
    const c10::cuda::CUDAGuard guard(gate.device());
    Tensor y = at::empty_like(gate);
    C10_CUDA_CHECK(kernel::forward(describe(gate, beta, linear_beta), gate.const_data_ptr(), up.const_data_ptr(), y.mutable_data_ptr(), current_stream()));
    context->save_for_backward({gate, up});
    context->saved_data["beta"] = beta;
    context->saved_data["linear_beta"] = linear_beta;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1], dy = grads[0].contiguous();
    const c10::cuda::CUDAGuard guard(gate.device());
    Tensor d_gate = at::empty_like(gate), d_up = at::empty_like(up);
    const kernel::Glu glu = describe(gate, context->saved_data["beta"].toDouble(), context->saved_data["linear_beta"].toDouble());
    C10_CUDA_CHECK(kernel::backward(glu, gate.const_data_ptr(), up.const_data_ptr(), dy.const_data_ptr(), d_gate.mutable_data_ptr(),
                                    d_up.mutable_data_ptr(), current_stream()));
    return {d_gate, d_up, Tensor(), Tensor()};
  }
};

}  // namespace

bool situ_cuda_takes(const Tensor& gate) { return gate.is_cuda() && kernel_dtype(gate) && gate.numel() > 0 && gate.numel() % 4 == 0; }

Tensor situ_cuda(const Tensor& gate, const Tensor& up, const Glu& options) {
  return SituFunction::apply(gate.contiguous(), up.contiguous(), options.beta, options.linear_beta);
}

}  // namespace k3::ops

#else

namespace k3::ops {

bool situ_cuda_takes(const Tensor&) { return false; }
Tensor situ_cuda(const Tensor&, const Tensor&, const Glu&) { K3_CHECK(false, "this build has no CUDA kernels"); }

}  // namespace k3::ops

#endif
