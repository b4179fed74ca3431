#include "checkpoint/summary.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace k3 {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t kContexts[] = {8192, 131072, 1048576};
constexpr const char* kContextNames[] = {"8k", "128k", "1M"};
constexpr std::int64_t kHalf = 2, kSingle = 4;  // bytes of bf16 and fp32

const char* role_name(Role role) {
  switch (role) {
    case Role::embedding: return "embedding";
    case Role::attention: return "attention";
    case Role::router: return "router";
    case Role::routed_expert: return "routed experts";
    case Role::shared_expert: return "shared experts";
    case Role::dense_mlp: return "dense MLP";
    case Role::latent: return "latent projections";
    case Role::norm: return "norms";
    case Role::depth: return "attention residuals";
    case Role::vision: return "vision";
    case Role::head: return "head";
  }
  return "other";
}

std::string dtype_label(const std::string& tensor, Dtype dtype) {
  if (tensor.ends_with(".weight_packed")) return "U8 (MXFP4 codes)";
  if (tensor.ends_with(".weight_scale")) return "U8 (MXFP4 scales)";
  return std::string(dtype_name(dtype));
}

// 2779931837184 -> "2,779,931,837,184"
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::int64_t at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string scaled(std::int64_t number, const char* unit) {
  const double value = static_cast<double>(number);
  if (value >= 1e12) return fmt::format("{:.2f} T{}", value * 1e-12, unit);
  if (value >= 1e9) return fmt::format("{:.2f} {}{}", value * 1e-9, *unit == '\0' ? "B" : "G", unit);
  if (value >= 1e6) return fmt::format("{:.2f} M{}", value * 1e-6, unit);
  if (value >= 1e3) return fmt::format("{:.2f} k{}", value * 1e-3, unit);
  return fmt::format("{} {}", number, unit);
}

// Layers (from 0) of one kind as "0-2, 4-6, 8", the middle of a long list left out: the pattern is seen at a glance.
std::string layer_ranges(const std::vector<bool>& is_kda, bool kda) {
  constexpr std::size_t shown_first = 4, shown_last = 2;
  std::vector<std::string> ranges;
  for (std::size_t first = 0, last = 0; first < is_kda.size(); first = last) {
    for (last = first; last < is_kda.size() && is_kda[last] == is_kda[first]; ++last) {}
    if (is_kda[first] == kda)
      ranges.push_back(last - first == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, last - 1));
  }
  if (ranges.size() > shown_first + shown_last + 1) {
    ranges[shown_first] = "...";
    ranges.erase(ranges.begin() + shown_first + 1, ranges.end() - shown_last);
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

std::string row(const char* label, const std::string& text) { return fmt::format("{:<12}{}\n", label, text); }

std::string counted(std::int64_t count, const char* things) {  // "1 KDA layer", "3 KDA layers"
  return count == 1 ? fmt::format("1 {}", things) : fmt::format("{} {}s", grouped(count), things);
}

std::string depth_text(const ModelConfig& config, const Summary& summary) {
  if (config.attn_res_block == 0) return "plain residuals";
  std::vector<std::int64_t> shown = summary.attn_res_starts;
  if (shown.size() > 12) shown.resize(12);
  return fmt::format("attention residuals: {} of {} layers, starting at {}{}",
                     counted(static_cast<std::int64_t>(summary.attn_res_starts.size()), "block"), config.attn_res_block,
                     fmt::join(shown, ", "), shown.size() < summary.attn_res_starts.size() ? ", ..." : "");
}

std::string activation_text(const ModelConfig& config) {
  if (config.activation == Activation::swiglu) return "SwiGLU";
  return config.situ_linear_beta > 0 ? fmt::format("SiTU (caps {} and {})", config.situ_beta, config.situ_linear_beta)
                                     : fmt::format("SiTU (cap {}, up branch uncapped)", config.situ_beta);
}

// The three axes of the report.
std::string architecture_text(const ModelConfig& config, const Summary& summary, const std::string& title) {
  const KdaConfig& kda = config.kda;
  const MlaConfig& mla = config.mla;
  const MoeConfig& moe = config.moe;
  std::string out = row("model", fmt::format("{} ({}: {} layers, hidden {}, vocabulary {}, context {})", title,
                                             config.family == Family::kimi_k3 ? "kimi_k3" : "kimi_linear",
                                             config.layers, config.hidden, config.vocab, config.max_context));
  out += row("sequence",
             fmt::format("{}: {}", counted(config.kda_layers(), "KDA layer"), layer_ranges(config.is_kda, true)));
  out += row(
      "", fmt::format("  {} heads x {}, {} taps, {} decay gate, {} output gate", kda.heads, kda.head_dim, kda.conv_taps,
                      kda.gate_lower_bound ? fmt::format("bounded ({})", *kda.gate_lower_bound) : "softplus",
                      kda.full_rank_gate ? "full-rank" : "low-rank"));
  out += row("", fmt::format("{}: {}", counted(config.mla_layers(), "MLA layer"), layer_ranges(config.is_kda, false)));
  out += row("", fmt::format("  {} heads, key {} + {} (not rotated), value {}, latent {}, query latent {}, {}",
                             mla.heads, mla.nope_dim, mla.rope_dim, mla.value_dim, mla.kv_lora_rank,
                             mla.q_lora_rank > 0 ? std::to_string(mla.q_lora_rank) : "none",
                             mla.output_gate ? "gated" : "no gate"));
  out += row("depth", depth_text(config, summary));
  out += row("width", fmt::format("{} of {}, {}", counted(config.layers - config.moe_layers(), "dense layer"),
                                  config.dense_dim, activation_text(config)));
  if (moe.experts > 0) {
    out += row("", fmt::format("{}: {} experts of {}, {} a token, {}", counted(config.moe_layers(), "MoE layer"),
                               moe.experts, moe.expert_dim, moe.experts_per_token,
                               moe.latent_dim > 0
                                   ? fmt::format("latent {}{}", moe.latent_dim, moe.latent_norm ? " (normed)" : "")
                                   : "no latent"));
    out += row("", fmt::format("  {} shared, routed scale {}, {}", moe.shared_experts, moe.routed_scaling_factor,
                               config.packed_experts ? "experts packed in MXFP4" : "experts in plain floats"));
  }
  if (config.vision)
    out += row("vision", fmt::format("{} blocks, hidden {}, {} heads x {}, patch {}", config.vision->layers,
                                     config.vision->hidden, config.vision->heads,
                                     config.vision->qkv_hidden / config.vision->heads, config.vision->patch));
  return out;
}

std::string costs_text(const Summary& summary) {
  const TensorTotals& totals = summary.totals;
  std::string out = row("tensors", grouped(totals.tensors));
  out += row("parameters", fmt::format("{} ({})", grouped(totals.parameters), scaled(totals.parameters, "")));
  out += row("  active", fmt::format("{} ({}) for a text token", grouped(totals.active_parameters),
                                     scaled(totals.active_parameters, "")));
  for (const auto& [role, count] : summary.parameters_by_role)
    out += row("", fmt::format("{:<20} {:>10} {:>6.2f} %", role, scaled(count, ""),
                               100.0 * static_cast<double>(count) / static_cast<double>(totals.parameters)));
  out += row("bytes", fmt::format("{} ({})", grouped(totals.bytes), scaled(totals.bytes, "B")));
  for (const auto& [dtype, bytes] : summary.bytes_by_dtype)
    out += row("", fmt::format("{:<20} {:>10}", dtype, scaled(bytes, "B")));
  out +=
      row("cache", fmt::format("{} B a token (MLA, bf16) + {} a sequence (KDA state, fp32)",
                               grouped(summary.cache_bytes_per_token), scaled(summary.state_bytes_per_sequence, "B")));
  for (std::size_t at = 0; at < std::size(kContexts); ++at) {
    const std::int64_t sequence = summary.sequence_bytes(kContexts[at]);
    out += row(at == 0 ? "memory" : "",
               fmt::format("{:>4} tokens: {:>10} of cache, {:>10} with the weights", kContextNames[at],
                           scaled(sequence, "B"), scaled(totals.bytes + sequence, "B")));
  }
  return out;
}

}  // namespace

Summary summarize(const ModelConfig& config, const Checkpoint* checkpoint) {
  Summary summary;
  const std::vector<ExpectedTensor> tensors = expected_tensors(config);
  summary.totals = count_tensors(config, tensors);
  std::int64_t stored_bytes = 0;
  for (const ExpectedTensor& tensor : tensors) {
    const TensorView* view = checkpoint == nullptr ? nullptr : checkpoint->find(tensor.name);
    const Dtype dtype = view == nullptr ? tensor.dtype : view->dtype;
    const std::int64_t bytes = view == nullptr ? TensorSpec{tensor.name, tensor.dtype, tensor.shape}.bytes()
                                               : static_cast<std::int64_t>(view->bytes.size());
    summary.bytes_by_dtype[dtype_label(tensor.name, dtype)] += bytes;
    summary.parameters_by_role[role_name(tensor.role)] += tensor.parameters;
    stored_bytes += bytes;
  }
  summary.totals.bytes = stored_bytes;
  summary.cache_bytes_per_token = config.mla_layers() * (config.mla.kv_lora_rank + config.mla.rope_dim) * kHalf;
  summary.state_bytes_per_sequence =
      config.kda_layers() * (config.kda.channels() * config.kda.head_dim * kSingle +
                             3 * config.kda.channels() * (config.kda.conv_taps - 1) * kHalf);
  if (config.attn_res_block > 0)
    for (std::int64_t layer = 0; layer < config.layers; layer += config.attn_res_block)
      summary.attn_res_starts.push_back(layer);
  return summary;
}

std::string summary_text(const ModelConfig& config, const Summary& summary, const std::string& title) {
  return architecture_text(config, summary, title) + "\n" + costs_text(summary);
}

std::string summary_json(const ModelConfig& config, const Summary& summary) {
  Json out;
  out["family"] = config.family == Family::kimi_k3 ? "kimi_k3" : "kimi_linear";
  out["tensors"] = summary.totals.tensors;
  out["parameters"] = summary.totals.parameters;
  out["active_parameters"] = summary.totals.active_parameters;
  out["bytes"] = summary.totals.bytes;
  out["bytes_by_dtype"] = summary.bytes_by_dtype;
  out["parameters_by_role"] = summary.parameters_by_role;
  out["layers"] = {{"total", config.layers},
                   {"kda", config.kda_layers()},
                   {"mla", config.mla_layers()},
                   {"moe", config.moe_layers()},
                   {"dense", config.layers - config.moe_layers()}};
  out["heads"] = {{"kda", config.kda.heads}, {"mla", config.mla.heads}};
  out["experts"] = {{"routed", config.moe.experts},
                    {"per_token", config.moe.experts_per_token},
                    {"shared", config.moe.shared_experts},
                    {"packed", config.packed_experts}};
  out["attn_res_blocks"] = summary.attn_res_starts.size();
  out["vision"] = config.vision.has_value();
  out["cache_bytes_per_token"] = summary.cache_bytes_per_token;
  out["state_bytes_per_sequence"] = summary.state_bytes_per_sequence;
  Json sequence = Json::object(), memory = Json::object();
  for (const std::int64_t tokens : kContexts) {
    sequence[std::to_string(tokens)] = summary.sequence_bytes(tokens);
    memory[std::to_string(tokens)] = summary.totals.bytes + summary.sequence_bytes(tokens);
  }
  out["sequence_bytes"] = sequence;
  out["memory_bytes"] = memory;
  return out.dump(2) + "\n";
}

}  // namespace k3
