#include "checkpoint/published.h"

namespace k3 {

std::vector<bool> published_layer_pattern(std::int64_t layers) {
  std::vector<bool> is_kda;
  for (std::int64_t layer = 1; layer <= layers; ++layer) is_kda.push_back(layer % 4 != 0 && layer != layers);
  return is_kda;
}

ModelConfig kimi_k3_config() {
  ModelConfig config;
  config.family = Family::kimi_k3;
  config.vocab = 163840;
  config.hidden = 7168;
  config.layers = 93;
  config.dense_dim = 33792;
  config.activation = Activation::situ;
  config.situ_beta = 4.0;
  config.situ_linear_beta = 25.0;
  config.norm_eps = 1e-5;
  config.max_context = 1048576;
  config.attn_res_block = 12;
  config.packed_experts = true;
  config.bos = 163584, config.eos = 163586, config.pad = 163839, config.media_placeholder = 163605;
  config.is_kda = published_layer_pattern(config.layers);
  config.kda = {.heads = 96, .head_dim = 128, .conv_taps = 4, .gate_lower_bound = -5.0, .full_rank_gate = true};
  config.mla = {.heads = 96,
                .q_lora_rank = 1536,
                .kv_lora_rank = 512,
                .nope_dim = 128,
                .rope_dim = 64,
                .value_dim = 128,
                .output_gate = true};
  config.moe = {.experts = 896,
                .experts_per_token = 16,
                .shared_experts = 2,
                .expert_dim = 3072,
                .latent_dim = 3584,
                .latent_norm = true,
                .renormalize = true,
                .routed_scaling_factor = 1.0,
                .first_dense = 1,
                .layer_freq = 1};
  VisionConfig vision;
  vision.layers = 27, vision.hidden = 1024, vision.intermediate = 4096, vision.heads = 12, vision.qkv_hidden = 1536;
  vision.text_hidden = config.hidden;
  config.vision = vision;
  return config;
}

ModelConfig kimi_linear_48b_config() {
  ModelConfig config;
  config.family = Family::kimi_linear;
  config.vocab = 163840;
  config.hidden = 2304;
  config.layers = 27;
  config.dense_dim = 9216;
  config.activation = Activation::swiglu;
  config.norm_eps = 1e-5;
  config.max_context = 1048576;
  config.bos = 163584, config.eos = 163586, config.pad = 163839;
  config.is_kda = published_layer_pattern(config.layers);
  config.kda = {
      .heads = 32, .head_dim = 128, .conv_taps = 4, .gate_lower_bound = std::nullopt, .full_rank_gate = false};
  config.mla = {.heads = 32,
                .q_lora_rank = 0,
                .kv_lora_rank = 512,
                .nope_dim = 128,
                .rope_dim = 64,
                .value_dim = 128,
                .output_gate = false};
  config.moe = {.experts = 256,
                .experts_per_token = 8,
                .shared_experts = 1,
                .expert_dim = 1024,
                .latent_dim = 0,
                .latent_norm = false,
                .renormalize = true,
                .routed_scaling_factor = 2.446,
                .first_dense = 1,
                .layer_freq = 1};
  return config;
}

}  // namespace k3
