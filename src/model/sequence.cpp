#include "model/sequence.h"

#include "ops/kda/kda.h"
#include "ops/kda/kda_step.h"
#include "ops/mla/mla.h"
#include "ops/norm/norm.h"
#include "ops/precision.h"
#include "ops/short_conv/short_conv.h"

namespace k3 {
namespace {

constexpr std::int64_t kAbsorbedTokens = 8;  // up to this many new tokens a row, MLA takes the absorbed form

// Reads and writes whole slots of one layer of a pool tensor [layers, slots, ...].
class SlotView {
 public:
  SlotView(const Tensor& pool, std::int64_t layer, const std::vector<std::int64_t>& slots) : layer_(pool.select(0, layer)), slots_(slots) {}
  Tensor read() const {
    return slots_.size() == 1 ? layer_.narrow(0, slots_[0], 1) : layer_.index_select(0, index());
  }
  void write(const Tensor& values) {
    if (slots_.size() == 1) layer_.narrow(0, slots_[0], 1).copy_(values);
    else layer_.index_copy_(0, index(), values.to(layer_.scalar_type()));
  }

 private:
  Tensor index() const { return at::tensor(slots_, at::kLong).to(layer_.device()); }
  Tensor layer_;
  const std::vector<std::int64_t>& slots_;
};

// Appends a row's new latents to its pages and returns all of the row's latents, [context + tokens, dim].
Tensor extend_latent(StatePool& pool, std::int64_t layer, std::int64_t slot, std::int64_t context, const Tensor& fresh) {
  const Tensor pages = pool.latent_pages.select(0, layer);  // [pages, kPageTokens, dim]
  const std::vector<std::int64_t>& owned = pool.pages_of[slot];
  const std::int64_t total = context + fresh.size(0);
  for (std::int64_t position = context; position < total;) {
    const std::int64_t within = position % kPageTokens;
    const std::int64_t count = std::min(kPageTokens - within, total - position);
    pages.select(0, owned[position / kPageTokens]).narrow(0, within, count).copy_(fresh.narrow(0, position - context, count));
    position += count;
  }
  const std::int64_t used = (total + kPageTokens - 1) / kPageTokens;
  bool consecutive = true;
  for (std::int64_t page = 1; page < used; ++page) consecutive &= owned[page] == owned[page - 1] + 1;
  if (consecutive) return pages.narrow(0, owned[0], used).reshape({used * kPageTokens, -1}).narrow(0, 0, total);
  const Tensor index = at::tensor(at::ArrayRef<std::int64_t>(owned.data(), used), at::kLong).to(pages.device());
  return pages.index_select(0, index).reshape({used * kPageTokens, -1}).narrow(0, 0, total);
}

}  // namespace

Tensor kda_attention(const KdaWeights& weights, const ModelConfig& config, const Tensor& x, const RowPlan& plan, LayerState state) {
  const KdaConfig& kda = config.kda;
  const std::int64_t tokens = x.size(0), channels = kda.channels();
  const auto by_head = [&](const Tensor& y) { return y.reshape({tokens, kda.heads, kda.head_dim}); };

  const Tensor q = at::linear(x, weights.q_proj), k = at::linear(x, weights.k_proj), v = at::linear(x, weights.v_proj);
  const Tensor decay_logits = by_head(at::linear(at::linear(x, weights.f_a_proj), weights.f_b_proj));
  const Tensor beta_logits = at::linear(x, weights.b_proj);
  const Tensor gate = by_head(weights.g_proj.defined() ? at::linear(x, weights.g_proj) : at::linear(at::linear(x, weights.g_a_proj), weights.g_b_proj));
  const Tensor taps = at::cat({weights.q_conv, weights.k_conv, weights.v_conv});
  const auto project = [&](const Tensor& y) { return at::linear(y.reshape({tokens, channels}), weights.o_proj); };

  if (state.pool != nullptr) {  // generation on a GPU: everything between the projections is one kernel
    const ops::KdaStep step{by_head(q),     by_head(k),           by_head(v),      decay_logits,
                            beta_logits,    gate,                 taps,            weights.a_log,
                            weights.dt_bias, weights.o_norm,      kda.gate_lower_bound, config.norm_eps,
                            state.pool->kda_state.select(0, state.layer), state.pool->conv_window.select(0, state.layer)};
    if (ops::kda_step_takes(step, plan)) return project(ops::kda_step(step, plan));
  }

  const Tensor u = at::cat({q, k, v}, -1);
  ops::ShortConv conv;
  if (state.pool == nullptr) {
    conv = ops::short_conv(u, taps, plan, {});
  } else {
    SlotView window(state.pool->conv_window, state.layer, plan.slots);
    conv = ops::short_conv(u, taps, plan, window.read());
    window.write(conv.window);
  }

  ops::KdaInputs inputs;
  inputs.q = ops::l2_norm(by_head(conv.out.narrow(1, 0, channels)), kL2NormEps);
  inputs.k = ops::l2_norm(by_head(conv.out.narrow(1, channels, channels)), kL2NormEps);
  inputs.v = by_head(conv.out.narrow(1, 2 * channels, channels));
  inputs.g = ops::kda_gate(decay_logits, weights.a_log, weights.dt_bias, kda.gate_lower_bound);
  inputs.beta = at::sigmoid(ops::wide(beta_logits));
  inputs.bounded = kda.gate_lower_bound.has_value() && *kda.gate_lower_bound >= -5.0;
  ops::KdaResult result;
  if (state.pool == nullptr) {
    result = ops::kda(inputs, plan, {});
  } else {
    SlotView memory(state.pool->kda_state, state.layer, plan.slots);
    result = ops::kda(inputs, plan, memory.read());
    memory.write(result.state);
  }
  return project(ops::gated_rms_norm(result.out, gate, weights.o_norm, config.norm_eps));
}

Tensor mla_attention(const MlaWeights& weights, const ModelConfig& config, const Tensor& x, const RowPlan& plan, LayerState state) {
  const MlaConfig& mla = config.mla;
  const ops::MlaShape shape{mla.nope_dim, mla.rope_dim, mla.value_dim};
  const std::int64_t tokens = x.size(0);

  const Tensor projected = weights.q_proj.defined()
                               ? at::linear(x, weights.q_proj)
                               : at::linear(ops::rms_norm(at::linear(x, weights.q_a_proj), weights.q_a_norm, kLoraNormEps), weights.q_b_proj);
  const Tensor q = projected.view({tokens, mla.heads, mla.query_dim()});
  const Tensor compressed = at::linear(x, weights.kv_a_proj);
  const Tensor latent = at::cat({ops::rms_norm(compressed.narrow(1, 0, mla.kv_lora_rank), weights.kv_a_norm, kLoraNormEps),
                                 compressed.narrow(1, mla.kv_lora_rank, mla.rope_dim)}, -1);
  const Tensor kv_b = weights.kv_b_proj.view({mla.heads, mla.nope_dim + mla.value_dim, mla.kv_lora_rank});

  Tensor o;
  if (state.pool == nullptr) {
    o = ops::mla_packed(q, latent, kv_b, shape, plan);
  } else {
    std::vector<Tensor> outs;
    for (std::int64_t row = 0; row < plan.rows(); ++row) {
      const std::int64_t start = plan.starts[row], length = plan.length(row);
      if (length == 0) continue;
      const Tensor keys = extend_latent(*state.pool, state.layer, plan.slots[row], plan.contexts[row], latent.narrow(0, start, length));
      const Tensor queries = q.narrow(0, start, length);
      outs.push_back(length <= kAbsorbedTokens ? ops::mla_absorbed(queries, keys, kv_b, shape) : ops::mla_expanded(queries, keys, kv_b, shape));
    }
    o = outs.size() == 1 ? outs[0] : at::cat(outs);
  }
  o = o.reshape({tokens, mla.heads * mla.value_dim});
  if (weights.g_proj.defined()) o = o * at::sigmoid(at::linear(x, weights.g_proj));
  return at::linear(o, weights.o_proj);
}

}  // namespace k3
