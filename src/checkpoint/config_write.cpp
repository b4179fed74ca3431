// ModelConfig -> config.json in the published dialect: the keys of checkpoint.md 1.1-1.4 (kimi_k3) and 1.6
// (kimi_linear).
#include <nlohmann/json.hpp>

#include "checkpoint/config.h"
#include "checkpoint/quantization_config.h"

namespace k3 {

using Json = nlohmann::ordered_json;

namespace {

Json optional_size(std::int64_t value) { return value > 0 ? Json(value) : Json(nullptr); }

Json linear_attention(const ModelConfig& config) {
  Json linear;
  linear["head_dim"] = config.kda.head_dim;
  linear["num_heads"] = config.kda.heads;
  linear["short_conv_kernel_size"] = config.kda.conv_taps;
  Json kda = Json::array(), full = Json::array();
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    (config.is_kda[static_cast<std::size_t>(layer)] ? kda : full).push_back(layer + 1);
  linear["full_attn_layers"] = full;
  linear["kda_layers"] = kda;
  if (config.kda.gate_lower_bound) linear["gate_lower_bound"] = *config.kda.gate_lower_bound;
  if (config.kda.full_rank_gate) linear["use_full_rank_gate"] = true;
  return linear;
}

void put_token_ids(Json& out, const ModelConfig& config) {
  if (config.bos >= 0) out["bos_token_id"] = config.bos;
  if (config.eos >= 0) out["eos_token_id"] = config.eos;
  if (config.pad >= 0) out["pad_token_id"] = config.pad;
}

// The text model: the whole file of kimi_linear, text_config of kimi_k3.
Json text_model(const ModelConfig& config) {
  Json out;
  out["architectures"] = {"KimiLinearForCausalLM"};
  out["model_type"] = "kimi_linear";
  out["dtype"] = "bfloat16";
  out["vocab_size"] = config.vocab;
  out["hidden_size"] = config.hidden;
  out["num_hidden_layers"] = config.layers;
  out["num_attention_heads"] = config.mla.heads;
  out["num_key_value_heads"] = config.mla.heads;
  out["intermediate_size"] = config.dense_dim;
  out["hidden_act"] = config.activation == Activation::situ ? "situ" : "silu";
  if (config.activation == Activation::situ) {
    out["activation_situ_beta"] = config.situ_beta;
    if (config.situ_linear_beta > 0.0) out["activation_situ_linear_beta"] = config.situ_linear_beta;
  }
  out["rms_norm_eps"] = config.norm_eps;
  out[config.family == Family::kimi_k3 ? "max_position_embeddings" : "model_max_length"] = config.max_context;
  if (config.attn_res_block > 0) out["attn_res_block_size"] = config.attn_res_block;
  out["q_lora_rank"] = optional_size(config.mla.q_lora_rank);
  out["kv_lora_rank"] = config.mla.kv_lora_rank;
  out["qk_nope_head_dim"] = config.mla.nope_dim;
  out["qk_rope_head_dim"] = config.mla.rope_dim;
  out["v_head_dim"] = config.mla.value_dim;
  out["mla_use_nope"] = true;
  if (config.mla.output_gate) out["mla_use_output_gate"] = true;
  out["linear_attn_config"] = linear_attention(config);
  if (config.moe.experts > 0) {
    const MoeConfig& moe = config.moe;
    out["first_k_dense_replace"] = moe.first_dense;
    out["moe_layer_freq"] = moe.layer_freq;
    out["num_experts"] = moe.experts;
    out["num_experts_per_token"] = moe.experts_per_token;
    out["num_shared_experts"] = moe.shared_experts;
    out["moe_intermediate_size"] = moe.expert_dim;
    if (moe.latent_dim > 0) out["routed_expert_hidden_size"] = moe.latent_dim;
    if (moe.latent_norm) out["latent_moe_use_norm"] = true;
    out["moe_router_activation_func"] = "sigmoid";
    out["moe_renormalize"] = moe.renormalize;
    out["routed_scaling_factor"] = moe.routed_scaling_factor;
    if (config.family == Family::kimi_k3) out["topk_method"] = "noaux_tc";
    out["use_grouped_topk"] = true;
    out["num_expert_group"] = 1;
    out["topk_group"] = 1;
  }
  out["num_nextn_predict_layers"] = 0;
  out["tie_word_embeddings"] = config.tied_embeddings;
  out["initializer_range"] = config.initializer_range;
  out["use_cache"] = true;
  put_token_ids(out, config);
  if (config.family == Family::kimi_linear && config.media_placeholder >= 0)
    out["media_placeholder_token_id"] = config.media_placeholder;
  if (config.packed_experts) out["quantization_config"] = Json::parse(quantization_config_text());
  return out;
}

Json vision_model(const VisionConfig& vision) {
  Json out;
  out["vt_num_hidden_layers"] = vision.layers;
  out["vt_hidden_size"] = vision.hidden;
  out["vt_intermediate_size"] = vision.intermediate;
  out["vt_num_attention_heads"] = vision.heads;
  out["qkv_hidden_size"] = vision.qkv_hidden;
  out["norm_type"] = "rmsnorm";
  out["mlp_type"] = "mlp2";
  out["activation_func"] = "gelu_pytorch_tanh";
  out["attn_bias"] = false;
  out["linear_bias"] = false;
  out["patch_embed_proj_bias"] = false;
  out["patch_size"] = vision.patch;
  out["merge_kernel_size"] = {vision.merge_height, vision.merge_width};
  out["merge_type"] = "sd2_tpool";
  out["pos_emb_type"] = "divided_fixed";
  out["pos_emb_interpolation_mode"] = "bilinear";
  out["init_pos_emb_height"] = vision.pos_height;
  out["init_pos_emb_width"] = vision.pos_width;
  out["init_pos_emb_time"] = vision.pos_time;
  out["mm_projector_type"] = "patchmergerv2";
  out["mm_hidden_size"] = vision.hidden;
  out["text_hidden_size"] = vision.text_hidden;
  out["projector_hidden_act"] = "gelu";
  out["projector_ln_eps"] = 1e-5;
  return out;
}

}  // namespace

std::string quantization_config_text() {
  return R"({
    "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "quantization_status": "compressed",
    "kv_cache_scheme": null, "global_compression_ratio": null,
    "config_groups": {"group_0": {
      "format": "mxfp4-pack-quantized", "targets": ["Linear"], "input_activations": null, "output_activations": null,
      "weights": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": true, "dynamic": false,
        "scale_dtype": "torch.uint8", "observer": "minmax", "zp_dtype": null, "actorder": null, "block_structure": null}}},
    "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*",
      "re:.*vision_tower.*", "re:.*mm_projector.*"]})";
}

std::string write_config(const ModelConfig& config) {
  if (config.family == Family::kimi_linear) return text_model(config).dump(2) + "\n";
  Json out;
  out["architectures"] = {"KimiK3ForConditionalGeneration"};
  out["model_type"] = "kimi_k3";
  out["dtype"] = "bfloat16";
  put_token_ids(out, config);
  if (config.media_placeholder >= 0) out["media_placeholder_token_id"] = config.media_placeholder;
  out["image_placeholder"] = "<|kimi_image_placeholder|>";
  out["ignore_index"] = -100;
  out["tie_word_embeddings"] = config.tied_embeddings;
  out["text_config"] = text_model(config);
  if (config.vision) out["vision_config"] = vision_model(*config.vision);
  return out.dump(2) + "\n";
}

}  // namespace k3
