#include "ops/short_conv/short_conv_cuda.h"

#include "base/autograd_function.h"
#include "base/error.h"

#ifdef K3_WITH_CUDA

#include "kernels/cuda/short_conv/short_conv.h"
#include "ops/cuda_call.h"

namespace k3::ops {
namespace {

namespace kernel = k3::cuda::short_conv;

kernel::Conv describe(const Tensor& u, const Tensor& taps, const Tensor& positions) {
  return {u.size(0), static_cast<int>(u.size(1)), is_bf16(u), u.const_data_ptr(), taps.const_data_ptr<float>(), positions.const_data_ptr<std::int32_t>()};
}

struct ConvFunction : torch::autograd::Function<ConvFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& u, const Tensor& taps, const Tensor& positions) {
    const c10::cuda::CUDAGuard guard(u.device());
    Tensor y = at::empty_like(u);
    C10_CUDA_CHECK(kernel::forward(describe(u, taps, positions), y.mutable_data_ptr(), current_stream()));
    context->save_for_backward({u, taps, positions});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& u = saved[0];
    const c10::cuda::CUDAGuard guard(u.device());
    const kernel::Conv conv = describe(u, saved[1], saved[2]);
    const Tensor dy = grads[0].contiguous();
    Tensor du = at::empty_like(u);
    Tensor parts = at::empty({kernel::strips(conv), u.size(1), kernel::kTaps}, saved[1].options());
    C10_CUDA_CHECK(kernel::backward(conv, dy.const_data_ptr(), du.mutable_data_ptr(), parts.mutable_data_ptr<float>(), current_stream()));
    return {du, parts.sum(0), Tensor()};
  }
};

}  // namespace

bool short_conv_cuda_takes(const Tensor& u, const Tensor& taps) {
  return u.is_cuda() && kernel_dtype(u) && u.size(0) > 0 && u.size(1) % 4 == 0 && taps.size(1) == kernel::kTaps;
}

Tensor short_conv_cuda(const Tensor& u, const Tensor& taps, const Tensor& positions) {
  return ConvFunction::apply(u.contiguous(), taps.to(at::kFloat).contiguous(), positions);
}

}  // namespace k3::ops

#else

namespace k3::ops {

bool short_conv_cuda_takes(const Tensor&, const Tensor&) { return false; }
Tensor short_conv_cuda(const Tensor&, const Tensor&, const Tensor&) { K3_CHECK(false, "this build has no CUDA kernels"); }

}  // namespace k3::ops

#endif
