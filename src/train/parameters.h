// Which optimiser moves which tensor, and how Muon cuts it into blocks (training.md 1.2, 1.5):
//   Muon    every matrix of attention, experts, dense and shared MLPs, latent projections and router. One block per
//           head for KDA q, k, v, f_b and MLA q; per head one block of key rows and one of value rows for kv_b; one
//           block per expert; else the whole matrix
//   AdamW   embedding, head, norms, convolutions, beta logits; without decay A_log, dt_bias and the AttnRes pair
//   none    the router's selection bias: Quantile Balancing sets it
#pragma once

#include <string>
#include <vector>

#include "base/tensor.h"
#include "checkpoint/config.h"

namespace k3::train {

enum class Update { muon, adamw, none };

// A tensor seen as [count, period, cols]; part p of it is [count, rows, cols] starting at row `first` of every period.
// Each of the `count` matrices of a part is a Newton-Schulz block.
struct BlockPart {
  std::int64_t first = 0, rows = 0;
};

struct ParameterRule {
  Update update = Update::none;
  bool decay = false;
  bool routed_expert = false;
  std::int64_t period = 0;            // Muon only
  std::vector<BlockPart> parts = {};  // Muon only; together they cover the period
};

// `name` as in named_tensors, `shape` as held by the model. A name without a rule is an internal error.
ParameterRule parameter_rule(const std::string& name, at::IntArrayRef shape, const ModelConfig& config);

}  // namespace k3::train
