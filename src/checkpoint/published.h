// The two released architectures, field by field (checkpoint.md 1.1-1.4 and 1.6). configs/*.json are these, written
// out.
#pragma once

#include <vector>

#include "checkpoint/config.h"

namespace k3 {

ModelConfig kimi_k3_config();          // moonshotai/Kimi-K3
ModelConfig kimi_linear_48b_config();  // moonshotai/Kimi-Linear-48B-A3B-Instruct

// The layer pattern of both for any depth: three KDA layers, one MLA layer, and the last layer is MLA.
std::vector<bool> published_layer_pattern(std::int64_t layers);

}  // namespace k3
