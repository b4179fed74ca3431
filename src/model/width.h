// The width axis: the dense gated MLP and Stable LatentMoE. Input is the normed sublayer input h [tokens, hidden].
// Source: checkpoint.md 3.4-3.6; report section 2.3.
#pragma once

#include "model/model.h"

namespace k3 {

Tensor dense_mlp(const MlpWeights& weights, const ModelConfig& config, const Tensor& h);

// The router reads h itself; the experts read its latent projection. The norm stands after the weighted sum, before the up projection.
Tensor latent_moe(const MoeWeights& weights, const ModelConfig& config, const Tensor& h, std::int64_t layer, const Observer* observer);

}  // namespace k3
