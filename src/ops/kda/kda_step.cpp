#include "ops/kda/kda_step.h"

#include "base/error.h"

#ifdef K3_WITH_CUDA

#include "kernels/cuda/kda/prefill.h"
#include "kernels/cuda/kda/step.h"
#include "ops/cuda_call.h"

namespace k3::ops {
namespace {

namespace kernel = k3::cuda::kda;

Tensor packed_rows(const Tensor& x, at::ScalarType type) { return x.to(type).contiguous(); }
kernel::Rows rows(const Tensor& x) { return {x.const_data_ptr(), x.stride(0), x.stride(1)}; }

// The kernel of rows longer than kKdaStepTokens serves these sizes on this device.
bool has_prefill(const KdaStep& step) {
  const c10::cuda::CUDAGuard guard(step.q.device());
  kernel::StepArguments a;
  a.dim = static_cast<int>(step.q.size(2));
  a.type = is_bf16(step.q) ? kernel::Type::bf16 : kernel::Type::fp32;
  a.lower_bound = static_cast<float>(step.lower_bound.value_or(0));
  return kernel::prefill_supported(a);
}

}  // namespace

bool kda_step_takes(const KdaStep& step, const RowPlan& plan) {
  const std::int64_t heads = step.q.size(1), dim = step.q.size(2);
  const bool shapes = (dim == 32 || dim == 64 || dim == 128) && step.v.size(2) == dim && step.taps.size(1) == 4 &&
                      step.taps.size(0) == 3 * heads * dim;
  const bool types = step.q.is_cuda() && kernel_dtype(step.q) && step.window.scalar_type() == step.q.scalar_type() &&
                     step.state.scalar_type() == at::kFloat;
  const bool recorded = at::GradMode::is_enabled() && (step.q.requires_grad() || step.state.requires_grad());
  return shapes && types && !recorded && (plan.longest() <= kKdaStepTokens || has_prefill(step));
}

Tensor kda_step(const KdaStep& step, const RowPlan& plan) {
  K3_CHECK(static_cast<std::int64_t>(plan.slots.size()) == plan.rows(), "{} rows but {} slots", plan.rows(), plan.slots.size());
  K3_CHECK(step.q.size(0) == plan.tokens(), "kda_step: {} tokens but the plan has {}", step.q.size(0), plan.tokens());
  K3_CHECK(step.state.is_contiguous() && step.window.is_contiguous(), "kda_step: a layer's states and windows must be contiguous");
  const c10::cuda::CUDAGuard guard(step.q.device());
  const at::ScalarType type = step.q.scalar_type();
  const Tensor q = packed_rows(step.q, type), k = packed_rows(step.k, type), v = packed_rows(step.v, type), z = packed_rows(step.z, type),
               gate = packed_rows(step.gate, type), b = packed_rows(step.b, type), taps = packed_rows(step.taps, at::kFloat),
               a_log = packed_rows(step.a_log, at::kFloat), dt_bias = packed_rows(step.dt_bias, at::kFloat),
               norm_weight = packed_rows(step.norm_weight, at::kFloat);
  std::vector<std::int32_t> borders(plan.starts.begin(), plan.starts.end());  // then the slots: one copy to the device
  borders.insert(borders.end(), plan.slots.begin(), plan.slots.end());
  const Tensor places = at::tensor(borders, at::kInt).to(step.q.device(), /*non_blocking=*/true);
  Tensor y = at::empty_like(q);

  kernel::StepArguments a;
  a.rows = static_cast<int>(plan.rows());
  a.longest = static_cast<int>(plan.longest());
  a.heads = static_cast<int>(q.size(1));
  a.dim = static_cast<int>(q.size(2));
  a.type = is_bf16(q) ? kernel::Type::bf16 : kernel::Type::fp32;
  a.starts = places.const_data_ptr<std::int32_t>();
  a.slots = a.starts + plan.rows() + 1;
  a.q = rows(q);
  a.k = rows(k);
  a.v = rows(v);
  a.z = rows(z);
  a.b = rows(b);
  a.gate = rows(gate);
  a.taps = taps.const_data_ptr<float>();
  a.a_log = a_log.const_data_ptr<float>();
  a.dt_bias = dt_bias.const_data_ptr<float>();
  a.norm_weight = norm_weight.const_data_ptr<float>();
  a.lower_bound = static_cast<float>(step.lower_bound.value_or(0));  // 0: the softplus gate
  a.norm_eps = static_cast<float>(step.norm_eps);
  a.state = step.state.mutable_data_ptr<float>();
  a.window = step.window.mutable_data_ptr();
  a.y = {y.mutable_data_ptr(), y.stride(0), y.stride(1)};
  if (plan.longest() <= kKdaStepTokens) {
    C10_CUDA_CHECK(kernel::step(a, current_stream()));
  } else {
    const auto bytes = static_cast<std::int64_t>(kernel::prefill_workspace_bytes(plan.longest(), a.rows, a.heads));
    const Tensor workspace = at::empty({bytes}, q.options().dtype(at::kByte));
    C10_CUDA_CHECK(kernel::prefill(a, plan.longest(), workspace.mutable_data_ptr(), current_stream()));
  }
  return y;
}

}  // namespace k3::ops

#else

namespace k3::ops {

bool kda_step_takes(const KdaStep&, const RowPlan&) { return false; }
Tensor kda_step(const KdaStep&, const RowPlan&) { K3_CHECK(false, "this build has no CUDA kernels"); }

}  // namespace k3::ops

#endif
