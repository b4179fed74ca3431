#include "ops/kda/kda_cuda.h"

#include "base/autograd_function.h"
#include "base/error.h"

#ifdef K3_WITH_CUDA

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cmath>

#include "kernels/cuda/kda/kda.h"

namespace k3::ops {
namespace {

namespace kernel = k3::cuda::kda;

kernel::Type type_of(const Tensor& x) { return x.scalar_type() == at::kBFloat16 ? kernel::Type::bf16 : kernel::Type::fp32; }
std::int64_t head_stride(const Tensor& x) { return x.dim() > 1 ? x.stride(1) : 0; }
kernel::Rows rows(const Tensor& x) { return {x.const_data_ptr(), x.stride(0), head_stride(x)}; }
kernel::MutableRows mutable_rows(Tensor& x) { return {x.mutable_data_ptr(), x.stride(0), head_stride(x)}; }
Tensor workspace(std::size_t bytes, const Tensor& like) {
  return at::empty({static_cast<std::int64_t>(bytes)}, like.options().dtype(at::kByte));
}

kernel::ForwardInputs forward_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta, const Tensor& starts,
                                     const Tensor& state) {
  kernel::ForwardInputs in;
  in.shape = {q.size(0), static_cast<int>(starts.size(0) - 1), static_cast<int>(q.size(1)), static_cast<int>(q.size(2))};
  in.type = type_of(q);
  in.q = rows(q);
  in.k = rows(k);
  in.v = rows(v);
  in.g = rows(g);
  in.beta = rows(beta);
  in.starts = starts.const_data_ptr<std::int32_t>();
  in.initial_state = state.defined() ? state.const_data_ptr<float>() : nullptr;
  in.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.size(2))));
  return in;
}

// Inputs contiguous; q, k, v of one dtype, g, beta and state fp32. -> out, final state.
struct KdaFunction : torch::autograd::Function<KdaFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                                                const Tensor& g, const Tensor& beta, const std::optional<Tensor>& initial_state, const Tensor& starts,
                                                bool keep) {
    const Tensor state = initial_state.value_or(Tensor());
    const c10::cuda::CUDAGuard guard(q.device());
    const kernel::ForwardInputs in = forward_inputs(q, k, v, g, beta, starts, state);
    const kernel::Keep mode = keep ? kernel::Keep::for_backward : kernel::Keep::nothing;
    Tensor out = at::empty(v.sizes(), v.options().dtype(at::kFloat));
    Tensor final_state = at::empty({in.shape.sequences, q.size(1), q.size(2), q.size(2)}, out.options());
    Tensor kept = workspace(kernel::forward_workspace_bytes(in.shape, mode), q);
    C10_CUDA_CHECK(kernel::forward(in, {kernel::Type::fp32, mutable_rows(out), final_state.mutable_data_ptr<float>()}, mode, kept.mutable_data_ptr(),
                                   c10::cuda::getCurrentCUDAStream()));
    if (keep) context->save_for_backward({q, k, v, g, beta, state, starts, kept});
    return {out, final_state};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &g = saved[3], &beta = saved[4], &state = saved[5], &starts = saved[6], &kept = saved[7];
    const c10::cuda::CUDAGuard guard(q.device());
    const Tensor d_out = grads[0].defined() ? grads[0].contiguous() : at::zeros(v.sizes(), g.options());
    const Tensor d_final = grads[1].defined() ? grads[1].contiguous() : Tensor();
    Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v), dg = at::empty_like(g), dbeta = at::empty_like(beta);
    Tensor d_state = state.defined() ? at::empty_like(state) : Tensor();
    kernel::BackwardArguments arguments;
    arguments.inputs = forward_inputs(q, k, v, g, beta, starts, state);
    arguments.output_type = kernel::Type::fp32;
    arguments.d_o = rows(d_out);
    arguments.d_final_state = d_final.defined() ? d_final.const_data_ptr<float>() : nullptr;
    arguments.kept = kept.const_data_ptr();
    arguments.dq = mutable_rows(dq);
    arguments.dk = mutable_rows(dk);
    arguments.dv = mutable_rows(dv);
    arguments.dg = mutable_rows(dg);
    arguments.dbeta = mutable_rows(dbeta);
    arguments.d_initial_state = d_state.defined() ? d_state.mutable_data_ptr<float>() : nullptr;
    Tensor scratch = workspace(kernel::backward_workspace_bytes(arguments.inputs.shape, true), q);
    C10_CUDA_CHECK(kernel::backward(arguments, scratch.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream()));
    return {dq, dk, dv, dg, dbeta, d_state, Tensor(), Tensor()};
  }
};

}  // namespace

bool kda_cuda_takes(const KdaInputs& inputs) {
  const std::int64_t dim = inputs.q.size(2);
  const at::ScalarType type = inputs.v.scalar_type();
  return inputs.q.is_cuda() && inputs.v.size(2) == dim && (dim == 32 || dim == 64 || dim == 128) && (type == at::kBFloat16 || type == at::kFloat);
}

KdaResult kda_cuda(const KdaInputs& in, const RowPlan& plan, const Tensor& initial_state) {
  const at::ScalarType type = in.v.scalar_type();
  const auto values = [&](const Tensor& x) { return x.to(type).contiguous(); };
  const auto wide = [&](const Tensor& x) { return x.to(at::kFloat).contiguous(); };
  const std::vector<std::int32_t> starts(plan.starts.begin(), plan.starts.end());
  std::optional<Tensor> state;
  if (initial_state.defined()) state = wide(initial_state);
  const bool keep = at::GradMode::is_enabled() && (in.q.requires_grad() || in.k.requires_grad() || in.v.requires_grad() || in.g.requires_grad() ||
                                                   in.beta.requires_grad() || (state && state->requires_grad()));
  const auto result = KdaFunction::apply(values(in.q), values(in.k), values(in.v), wide(in.g), wide(in.beta), state,
                                         at::tensor(starts, at::kInt).to(in.q.device(), /*non_blocking=*/true), keep);
  return {result[0], result[1]};
}

}  // namespace k3::ops

#else

namespace k3::ops {

bool kda_cuda_takes(const KdaInputs&) { return false; }
KdaResult kda_cuda(const KdaInputs&, const RowPlan&, const Tensor&) { K3_CHECK(false, "this build has no CUDA kernels"); }

}  // namespace k3::ops

#endif
