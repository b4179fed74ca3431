#include "train/parameters.h"

#include <cstdlib>

#include "base/error.h"

namespace k3::train {
namespace {

bool contains(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

std::int64_t layer_of(const std::string& name) {
  const std::size_t at = name.find("layers.");
  return at == std::string::npos ? -1 : std::atoll(name.c_str() + at + 7);
}

ParameterRule adamw(bool decay) { return {.update = Update::adamw, .decay = decay}; }

ParameterRule muon(std::int64_t period, std::vector<BlockPart> parts = {}) {
  if (parts.empty()) parts = {{0, period}};
  return {.update = Update::muon, .decay = true, .period = period, .parts = std::move(parts)};
}

ParameterRule kda_rule(const std::string& name, std::int64_t rows, const KdaConfig& kda) {
  if (contains(name, "A_log") || contains(name, "dt_bias")) return adamw(false);
  if (contains(name, "conv1d") || contains(name, "o_norm") || contains(name, ".b_proj")) return adamw(true);
  const bool per_head =
      contains(name, ".q_proj") || contains(name, ".k_proj") || contains(name, ".v_proj") || contains(name, "f_b_proj");
  return muon(per_head ? kda.head_dim : rows);
}

ParameterRule mla_rule(const std::string& name, std::int64_t rows, const MlaConfig& mla) {
  if (contains(name, "layernorm")) return adamw(true);
  if (contains(name, ".q_proj") || contains(name, "q_b_proj")) return muon(mla.query_dim());
  if (contains(name, "kv_b_proj"))
    return muon(mla.nope_dim + mla.value_dim, {{0, mla.nope_dim}, {mla.nope_dim, mla.value_dim}});
  return muon(rows);
}

}  // namespace

ParameterRule parameter_rule(const std::string& name, at::IntArrayRef shape, const ModelConfig& config) {
  if (contains(name, "e_score_correction_bias")) return {};
  if (contains(name, "embed_tokens") || contains(name, "lm_head")) return adamw(true);
  if (contains(name, "_res_norm") || contains(name, "_res_proj")) return adamw(false);
  if (contains(name, "self_attn.")) {
    const std::int64_t layer = layer_of(name);
    K3_CHECK(layer >= 0 && layer < config.layers, "{} names no layer of the config", name);
    return config.is_kda[static_cast<std::size_t>(layer)] ? kda_rule(name, shape[0], config.kda)
                                                          : mla_rule(name, shape[0], config.mla);
  }
  if (shape.size() == 1) return adamw(true);  // norms
  if (shape.size() == 3) {
    K3_CHECK(contains(name, "experts."), "{} has three dimensions but is no stack of experts", name);
    ParameterRule rule = muon(shape[1]);
    rule.routed_expert = true;
    return rule;
  }
  K3_CHECK(shape.size() == 2, "no optimiser is known for {}", name);
  return muon(shape[0]);
}

}  // namespace k3::train
