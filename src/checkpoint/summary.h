// What an architecture costs: parameters, bytes by dtype, caches. Every number comes from the tensor list or the shapes
// of the state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/names.h"

namespace k3 {

struct Summary {
  TensorTotals totals;
  std::map<std::string, std::int64_t> bytes_by_dtype;       // "BF16", "F32", "U8 (MXFP4 codes)", "U8 (MXFP4 scales)"
  std::map<std::string, std::int64_t> parameters_by_role;   // "routed experts", "attention", ...
  std::int64_t cache_bytes_per_token = 0;                   // MLA: latent and shared key of every MLA layer, bf16
  std::int64_t state_bytes_per_sequence = 0;  // KDA: fp32 states and bf16 convolution windows, whatever the length
  std::vector<std::int64_t> attn_res_starts;                // layers (from 0) at which a depth block begins

  // One sequence of that many tokens; the cache grows by whole pages.
  std::int64_t sequence_bytes(std::int64_t tokens) const {
    return state_bytes_per_sequence + tokens * cache_bytes_per_token;
  }
};

Summary summarize(const ModelConfig& config,
                  const Checkpoint* checkpoint = nullptr);  // dtypes as stored when the files are given
std::string summary_text(const ModelConfig& config, const Summary& summary, const std::string& title);
std::string summary_json(const ModelConfig& config, const Summary& summary);

}  // namespace k3
