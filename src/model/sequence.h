// The sequence axis: Kimi Delta Attention (recurrent) and gated NoPE MLA (global). Input is the normed sublayer input [tokens, hidden].
// Source: checkpoint.md 3.2, 3.3; report section 2.1.
#pragma once

#include "model/model.h"

namespace k3 {

// Where a layer finds its part of the pool; pool == nullptr: rows start from nothing and leave no state.
struct LayerState {
  StatePool* pool = nullptr;
  std::int64_t layer = 0;  // counts layers of the same kind
};

Tensor kda_attention(const KdaWeights& weights, const ModelConfig& config, const Tensor& x, const RowPlan& plan, LayerState state);
Tensor mla_attention(const MlaWeights& weights, const ModelConfig& config, const Tensor& x, const RowPlan& plan, LayerState state);

}  // namespace k3
