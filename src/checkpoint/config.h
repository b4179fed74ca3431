// The architecture of both families, read from a Hugging Face config.json (checkpoint.md 1). One flat description;
// absent keys have the meaning that the published code gives them. Layers are 0-based here, 1-based in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace k3 {

enum class Family { kimi_k3, kimi_linear };
enum class Activation { situ, swiglu };

struct KdaConfig {
  std::int64_t heads = 0, head_dim = 0;    // key_dim = value_dim = head_dim
  std::int64_t conv_taps = 4;
  std::optional<double> gate_lower_bound;  // present: bounded gate (K3, -5); absent: softplus gate
  bool full_rank_gate = false;             // true: g_proj; false: g_a_proj, g_b_proj
  std::int64_t channels() const { return heads * head_dim; }
  bool operator==(const KdaConfig&) const = default;
};

struct MlaConfig {
  std::int64_t heads = 0;
  std::int64_t q_lora_rank = 0;  // 0: plain q_proj
  std::int64_t kv_lora_rank = 0;
  std::int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;  // the rope slot is never rotated
  bool output_gate = false;
  std::int64_t query_dim() const { return nope_dim + rope_dim; }
  bool operator==(const MlaConfig&) const = default;
};

struct MoeConfig {
  std::int64_t experts = 0, experts_per_token = 0;  // experts == 0: every layer is dense
  std::int64_t shared_experts = 0;                  // fused into one MLP of width shared_experts * expert_dim
  std::int64_t expert_dim = 0;                      // moe_intermediate_size
  std::int64_t latent_dim = 0;                      // routed_expert_hidden_size; 0: experts read hidden directly
  bool latent_norm = false;
  bool renormalize = true;
  double routed_scaling_factor = 1.0;
  std::int64_t first_dense = 0;  // layers below are dense
  std::int64_t layer_freq = 1;
  bool operator==(const MoeConfig&) const = default;
};

struct VisionConfig {  // MoonViT-V2; kept for names, counts and bytes
  std::int64_t layers = 0, hidden = 0, intermediate = 0, heads = 0, qkv_hidden = 0;
  std::int64_t patch = 14, pos_height = 64, pos_width = 64, pos_time = 4, merge_height = 2, merge_width = 2,
               text_hidden = 0;
  bool operator==(const VisionConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::kimi_k3;
  std::int64_t vocab = 0, hidden = 0, layers = 0, dense_dim = 0;  // dense_dim: intermediate_size
  Activation activation = Activation::situ;
  double situ_beta = 1.0;         // gate soft-cap
  double situ_linear_beta = 0.0;  // up-branch soft-cap; 0: none
  double norm_eps = 1e-5;         // MLA LoRA norms and the L2 norm use 1e-6 instead
  double initializer_range = 0.02;
  std::int64_t max_context = 0;
  std::int64_t attn_res_block = 0;  // layers per AttnRes block; 0: plain residuals
  bool tied_embeddings = false;
  bool packed_experts = false;  // quantization_config present: MXFP4 routed experts
  std::int64_t bos = -1, eos = -1, pad = -1;
  std::int64_t media_placeholder = -1;
  std::vector<bool> is_kda;  // [layers]; false: MLA
  KdaConfig kda;
  MlaConfig mla;
  MoeConfig moe;
  std::optional<VisionConfig> vision;

  bool is_moe(std::int64_t layer) const {
    return moe.experts > 0 && layer >= moe.first_dense && layer % moe.layer_freq == 0;
  }
  std::int64_t kda_layers() const;
  std::int64_t mla_layers() const;
  std::int64_t moe_layers() const;
  std::int64_t expert_input_dim() const {
    return moe.latent_dim > 0 ? moe.latent_dim : hidden;
  }  // what routed experts read
  bool operator==(const ModelConfig&) const = default;
};

inline constexpr double kLoraNormEps =
    1e-6;  // q_a_layernorm, kv_a_layernorm: built with the class default in the published code
inline constexpr double kL2NormEps = 1e-6;    // inside the square root of the q and k normalisation

// Reads DIR/config.json, or PATH itself when it is a file. Unknown keys that could change the result, absurd sizes and
// missing keys are UserErrors that name the file and the key. Also reads the dialect that transformers 5 writes for
// kimi_linear.
ModelConfig read_config(const std::filesystem::path& path);
ModelConfig parse_config(const std::string& text, const std::string& name_for_errors);

// The config.json of this architecture in the published dialect; parse_config(write_config(c)) == c.
std::string write_config(const ModelConfig& config);

}  // namespace k3
