#include "ops/short_conv/short_conv.h"

#include "ops/precision.h"
#include "ops/short_conv/short_conv_cuda.h"

namespace k3::ops {
namespace {

// y[t] uses u[t - back]; tokens nearer than `back` to their row's start get zero.
Tensor shifted(const Tensor& u, std::int64_t back, const Tensor& position_in_row) {
  if (back == 0) return u;
  const std::int64_t tokens = u.size(0);
  if (back >= tokens) return at::zeros_like(u);
  const Tensor moved = at::constant_pad_nd(u.narrow(0, 0, tokens - back), {0, 0, back, 0});
  return moved * (position_in_row >= back).to(u.scalar_type()).unsqueeze(1);
}

Tensor positions(const RowPlan& plan, const Tensor& like) {
  std::vector<std::int32_t> position(plan.tokens());
  for (std::int64_t row = 0; row < plan.rows(); ++row)
    for (std::int64_t token = plan.starts[row]; token < plan.starts[row + 1]; ++token)
      position[token] = static_cast<std::int32_t>(token - plan.starts[row]);
  return at::tensor(position, at::kInt).to(like.device(), /*non_blocking=*/true);
}

Tensor from_nothing(const Tensor& u, const Tensor& taps, const RowPlan& plan) {
  const std::int64_t count = taps.size(1);
  const Tensor position_in_row = positions(plan, u);
  Tensor sum;
  for (std::int64_t tap = 0; tap < count; ++tap) {
    const Tensor term = shifted(u, count - 1 - tap, position_in_row) * taps.select(1, tap);
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

}  // namespace

ShortConv short_conv(const Tensor& u, const Tensor& taps, const RowPlan& plan, const Tensor& window) {
  if (!window.defined() && short_conv_cuda_takes(u, taps)) return {short_conv_cuda(u, taps, positions(plan, u)), {}};
  const Tensor wide_u = wide(u);
  const Tensor wide_taps = taps.to(wide_u.scalar_type());
  if (!window.defined()) return {at::silu(from_nothing(wide_u, wide_taps, plan)).to(u.scalar_type()), {}};

  const std::int64_t history = taps.size(1) - 1;
  std::vector<Tensor> outs, windows;
  for (std::int64_t row = 0; row < plan.rows(); ++row) {
    const std::int64_t length = plan.length(row);
    const Tensor extended = at::cat({window[row].to(wide_u.scalar_type()), wide_u.narrow(0, plan.starts[row], length)});
    Tensor sum = at::zeros({length, u.size(1)}, wide_u.options());
    for (std::int64_t tap = 0; tap <= history; ++tap) sum = sum + extended.narrow(0, tap, length) * wide_taps.select(1, tap);
    outs.push_back(sum);
    windows.push_back(extended.narrow(0, length, history));
  }
  return {at::silu(at::cat(outs)).to(u.scalar_type()), at::stack(windows).to(window.scalar_type())};
}

}  // namespace k3::ops
