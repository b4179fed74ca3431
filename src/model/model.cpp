#include "model/model.h"

#include "base/error.h"
#include "model/depth.h"
#include "model/sequence.h"
#include "model/width.h"
#include "ops/norm/norm.h"
#include "ops/precision.h"

namespace k3 {
namespace {

void prepare_slots(const RowPlan& plan, StatePool& pool) {
  K3_CHECK(static_cast<std::int64_t>(plan.slots.size()) == plan.rows(), "{} rows but {} slots", plan.rows(), plan.slots.size());
  for (std::int64_t row = 0; row < plan.rows(); ++row) {
    const std::int64_t slot = plan.slots[row];
    K3_CHECK(pool.lengths[slot] == plan.contexts[row], "slot {} holds {} tokens, the batch says {}", slot, pool.lengths[slot], plan.contexts[row]);
    pool.reserve(slot, plan.contexts[row] + plan.length(row));
  }
}

}  // namespace

Tensor forward(const Model& model, const ForwardBatch& batch, StatePool* pool, const Observer* observer) {
  const ModelConfig& config = model.config;
  if (pool != nullptr) prepare_slots(batch.plan, *pool);
  DepthSources sources;
  sources.prefix = at::embedding(model.embedding, batch.ids);
  std::int64_t kda_index = 0, mla_index = 0;
  for (std::int64_t index = 0; index < config.layers; ++index) {
    const Layer& layer = model.layers[index];
    const Tensor a = ops::rms_norm(attention_input(sources, layer, config, index), layer.input_norm, config.norm_eps);
    if (const auto* kda = std::get_if<KdaWeights>(&layer.attention))
      add_to_prefix(sources, kda_attention(*kda, config, a, batch.plan, {pool, kda_index++}));
    else
      add_to_prefix(sources, mla_attention(std::get<MlaWeights>(layer.attention), config, a, batch.plan, {pool, mla_index++}));

    const Tensor m = ops::rms_norm(mlp_input(sources, layer, config), layer.post_attention_norm, config.norm_eps);
    if (const auto* moe = std::get_if<MoeWeights>(&layer.mlp))
      add_to_prefix(sources, latent_moe(*moe, config, m, index, observer));
    else
      add_to_prefix(sources, dense_mlp(std::get<MlpWeights>(layer.mlp), config, m));
    if (observer != nullptr && observer->after_layer) observer->after_layer(index, sources.prefix);
  }
  if (pool != nullptr)
    for (std::int64_t row = 0; row < batch.plan.rows(); ++row) pool->lengths[batch.plan.slots[row]] += batch.plan.length(row);
  return ops::rms_norm(output_mix(sources, model), model.norm, config.norm_eps);
}

Tensor logits(const Model& model, const Tensor& hidden) { return ops::wide(at::linear(hidden, model.head)); }

std::vector<std::int64_t> last_tokens(const RowPlan& plan) {
  std::vector<std::int64_t> last;
  for (std::int64_t row = 0; row < plan.rows(); ++row) last.push_back(plan.starts[row + 1] - 1);
  return last;
}

}  // namespace k3
