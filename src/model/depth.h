// The depth axis. With Attention Residuals a sublayer reads a mix over finished blocks and the running prefix; without, the plain
// residual stream. DepthSources is all that one layer passes to the next. Source: checkpoint.md 3.7; report section 2.2.
#pragma once

#include "model/model.h"

namespace k3 {

struct DepthSources {
  std::vector<Tensor> blocks;  // finished blocks, [tokens, hidden] each; the first is the embedding
  Tensor prefix;               // running sum of the current block; undefined right after a block was closed
};

// The input of an attention sublayer; closes the block when `layer` starts a new one.
Tensor attention_input(DepthSources& sources, const Layer& weights, const ModelConfig& config, std::int64_t layer);
Tensor mlp_input(const DepthSources& sources, const Layer& weights, const ModelConfig& config);
Tensor output_mix(const DepthSources& sources, const Model& model);
void add_to_prefix(DepthSources& sources, const Tensor& sublayer_output);

}  // namespace k3
