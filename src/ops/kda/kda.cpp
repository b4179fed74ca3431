// Gate, choice of form, and the recurrent form. The chunk form is kda_chunk.cpp.
#include "ops/kda/kda.h"

#include <cmath>

#include "base/error.h"
#include "ops/kda/kda_chunk.h"
#include "ops/kda/kda_cuda.h"
#include "ops/precision.h"

namespace k3::ops {
namespace {

constexpr std::int64_t kRecurrentTokens = 8;  // rows up to this long take the recurrent form under `automatic`

// Steps all rows that still have a token at once.
KdaResult recurrent(const KdaInputs& in, const RowPlan& plan, Tensor state) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(in.q.size(-1)));
  const std::int64_t longest = plan.longest();
  std::vector<Tensor> outs;
  std::vector<std::int64_t> source(plan.tokens());  // token -> row of cat(outs)
  std::int64_t written = 0;
  for (std::int64_t step = 0; step < longest; ++step) {
    std::vector<std::int64_t> active, tokens;
    for (std::int64_t row = 0; row < plan.rows(); ++row) {
      if (step >= plan.length(row)) continue;
      active.push_back(row);
      tokens.push_back(plan.starts[row] + step);
      source[tokens.back()] = written++;
    }
    const bool all = static_cast<std::int64_t>(active.size()) == plan.rows();
    const bool in_place = all && plan.rows() == plan.tokens();  // one token a row: no gathering
    const auto index_options = in.q.options().dtype(at::kLong);
    const Tensor token_index = in_place ? Tensor() : at::tensor(tokens, at::kLong).to(index_options.device());
    const Tensor row_index = all ? Tensor() : at::tensor(active, at::kLong).to(index_options.device());
    const auto pick = [&](const Tensor& x) { return in_place ? x : x.index_select(0, token_index); };
    const Tensor q = pick(in.q), k = pick(in.k), v = pick(in.v), g = pick(in.g), beta = pick(in.beta);

    Tensor s = (all ? state : state.index_select(0, row_index)) * at::exp(g).unsqueeze(-1);  // [rows, heads, key, value]
    const Tensor predicted = at::matmul(k.unsqueeze(-2), s).squeeze(-2);                      // S^T k
    const Tensor u = beta.unsqueeze(-1) * (v - predicted);
    s = s + k.unsqueeze(-1) * u.unsqueeze(-2);
    outs.push_back(at::matmul(q.unsqueeze(-2), s).squeeze(-2) * scale);
    state = all ? s : state.index_copy(0, row_index, s);
  }
  if (outs.size() == 1 && plan.rows() == plan.tokens()) return {outs[0], state};
  if (outs.empty()) return {at::zeros_like(in.v), state};
  const Tensor order = at::tensor(source, at::kLong).to(in.q.device());
  return {at::cat(outs).index_select(0, order), state};
}

}  // namespace

Tensor kda_gate(const Tensor& z, const Tensor& a_log, const Tensor& dt_bias, std::optional<double> lower_bound) {
  const at::ScalarType type = wide_type(z);
  const std::int64_t heads = z.size(-2), dim = z.size(-1);
  const Tensor rate = at::exp(a_log.to(type)).unsqueeze(-1);  // [heads, 1]
  const Tensor biased = z.to(type) + dt_bias.to(type).view({heads, dim});
  if (lower_bound) return *lower_bound * at::sigmoid(rate * biased);
  return -rate * at::softplus(biased);  // linear above 20, as the published code
}

KdaResult kda(const KdaInputs& inputs, const RowPlan& plan, const Tensor& state, KdaForm form) {
  const std::int64_t heads = inputs.q.size(1), key_dim = inputs.q.size(2), value_dim = inputs.v.size(2);
  K3_CHECK(inputs.q.size(0) == plan.tokens(), "kda: {} tokens but the plan has {}", inputs.q.size(0), plan.tokens());
  if (form == KdaForm::automatic && kda_cuda_takes(inputs)) return kda_cuda(inputs, plan, state);
  const at::ScalarType type = wide_type(inputs.q);
  const KdaInputs in{inputs.q.to(type), inputs.k.to(type), inputs.v.to(type), inputs.g.to(type), inputs.beta.to(type), inputs.bounded};
  const Tensor start = state.defined() ? state.to(type) : at::zeros({plan.rows(), heads, key_dim, value_dim}, in.q.options());
  if (form == KdaForm::automatic) form = plan.longest() <= kRecurrentTokens ? KdaForm::recurrent : KdaForm::chunk;
  return form == KdaForm::recurrent ? recurrent(in, plan, start) : kda_chunk(in, plan, start);
}

}  // namespace k3::ops
