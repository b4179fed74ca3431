#include "model/depth.h"

#include "ops/attn_res/attn_res.h"

namespace k3 {
namespace {

Tensor mix(const DepthSources& sources, const DepthWeights& weights, double eps) {
  std::vector<Tensor> all = sources.blocks;
  all.push_back(sources.prefix);
  return ops::attn_res_mix(all, weights.norm, weights.proj, eps);
}

}  // namespace

Tensor attention_input(DepthSources& sources, const Layer& weights, const ModelConfig& config, std::int64_t layer) {
  if (config.attn_res_block == 0) return sources.prefix;
  // Only the very first sublayer reads the embedding unmixed.
  const Tensor input = sources.blocks.empty() ? sources.prefix : mix(sources, weights.attention_mix, config.norm_eps);
  if (layer % config.attn_res_block == 0) {
    sources.blocks.push_back(sources.prefix);  // the entering, unmixed value
    sources.prefix = Tensor();
  }
  return input;
}

Tensor mlp_input(const DepthSources& sources, const Layer& weights, const ModelConfig& config) {
  return config.attn_res_block == 0 ? sources.prefix : mix(sources, weights.mlp_mix, config.norm_eps);
}

Tensor output_mix(const DepthSources& sources, const Model& model) {
  return model.config.attn_res_block == 0 ? sources.prefix : mix(sources, model.output_mix, model.config.norm_eps);
}

void add_to_prefix(DepthSources& sources, const Tensor& sublayer_output) {
  sources.prefix = sources.prefix.defined() ? sources.prefix + sublayer_output : sublayer_output;
}

}  // namespace k3
