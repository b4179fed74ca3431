// The tensor list of checkpoint.md 2.1, 2.3 and 2.4, from the config alone.
#include "checkpoint/names.h"

#include <bit>

#include "base/error.h"
#include "checkpoint/mxfp4.h"

namespace k3 {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t product(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

class TensorList {
 public:
  explicit TensorList(const ModelConfig& config) : config_(config) {}
  std::vector<ExpectedTensor> take() { return std::move(tensors_); }

  void layer(std::int64_t index) {
    const std::string prefix = layer_prefix(config_, index);
    if (config_.is_kda[static_cast<std::size_t>(index)]) kda(prefix + "self_attn.");
    else mla(prefix + "self_attn.");
    add(prefix + "input_layernorm.weight", {config_.hidden}, Role::norm);
    add(prefix + "post_attention_layernorm.weight", {config_.hidden}, Role::norm);
    if (config_.attn_res_block > 0) {
      depth(prefix + "self_attention_res");
      depth(prefix + "mlp_res");
    }
    if (config_.is_moe(index)) moe(prefix + "block_sparse_moe.");
    else mlp(prefix + "mlp.", config_.dense_dim, Role::dense_mlp);
  }

  void model_level() {
    const std::string prefix = text_prefix(config_);
    add(prefix + "model.embed_tokens.weight", {config_.vocab, config_.hidden}, Role::embedding);
    add(prefix + "model.norm.weight", {config_.hidden}, Role::norm);
    if (config_.attn_res_block > 0) depth(prefix + "model.output_attn_res");
    if (!config_.tied_embeddings) add(prefix + "lm_head.weight", {config_.vocab, config_.hidden}, Role::head);
  }

  void vision(const VisionConfig& vision) {
    const std::int64_t merged = vision.hidden * vision.merge_height * vision.merge_width;
    add("vision_tower.patch_embed.proj.weight", {vision.hidden, 3, vision.patch, vision.patch}, Role::vision);
    add("vision_tower.patch_embed.pos_emb.weight", {vision.pos_height, vision.pos_width, vision.hidden}, Role::vision);
    for (std::int64_t block = 0; block < vision.layers; ++block) {
      const std::string prefix = fmt::format("vision_tower.encoder.blocks.{}.", block);
      add(prefix + "norm0.weight", {vision.hidden}, Role::vision);
      add(prefix + "wqkv.weight", {3 * vision.qkv_hidden, vision.hidden}, Role::vision);
      add(prefix + "wo.weight", {vision.hidden, vision.qkv_hidden}, Role::vision);
      add(prefix + "norm1.weight", {vision.hidden}, Role::vision);
      add(prefix + "mlp.fc0.weight", {vision.intermediate, vision.hidden}, Role::vision);
      add(prefix + "mlp.fc1.weight", {vision.hidden, vision.intermediate}, Role::vision);
    }
    add("vision_tower.encoder.final_layernorm.weight", {vision.hidden}, Role::vision);
    add("mm_projector.proj.0.weight", {merged, merged}, Role::vision);
    add("mm_projector.proj.2.weight", {vision.text_hidden, merged}, Role::vision);
    add("mm_projector.post_norm.weight", {vision.text_hidden}, Role::vision);
  }

 private:
  ExpectedTensor& add(std::string name, Shape shape, Role role, Dtype dtype = Dtype::BF16) {
    const std::int64_t count = product(shape);
    tensors_.push_back(
        {.name = std::move(name), .shape = std::move(shape), .dtype = dtype, .role = role, .parameters = count});
    return tensors_.back();
  }

  void kda(const std::string& prefix) {
    const KdaConfig& kda = config_.kda;
    // The K3 release keeps convolutions and o_norm in F32; Kimi Linear keeps them in the model's dtype.
    const Dtype fine = config_.family == Family::kimi_k3 ? Dtype::F32 : Dtype::BF16;
    for (const char* stream : {"q", "k", "v"}) {
      add(prefix + stream + "_proj.weight", {kda.channels(), config_.hidden}, Role::attention);
      add(prefix + stream + "_conv1d.weight", {kda.channels(), 1, kda.conv_taps}, Role::attention, fine);
    }
    add(prefix + "f_a_proj.weight", {kda.head_dim, config_.hidden}, Role::attention);
    add(prefix + "f_b_proj.weight", {kda.channels(), kda.head_dim}, Role::attention);
    add(prefix + "dt_bias", {kda.channels()}, Role::attention, Dtype::F32);
    add(prefix + "A_log", a_log_shape(), Role::attention, Dtype::F32).a_log = true;
    add(prefix + "b_proj.weight", {kda.heads, config_.hidden}, Role::attention);
    if (kda.full_rank_gate) {
      add(prefix + "g_proj.weight", {kda.channels(), config_.hidden}, Role::attention);
    } else {
      add(prefix + "g_a_proj.weight", {kda.head_dim, config_.hidden}, Role::attention);
      add(prefix + "g_b_proj.weight", {kda.channels(), kda.head_dim}, Role::attention);
    }
    add(prefix + "o_norm.weight", {kda.head_dim}, Role::attention, fine);
    add(prefix + "o_proj.weight", {config_.hidden, kda.channels()}, Role::attention);
  }

  // K3 pads the list with zeros to a power of two (96 heads: 128 entries).
  Shape a_log_shape() const {
    const std::int64_t heads = config_.kda.heads;
    if (config_.family == Family::kimi_linear) return {1, 1, heads, 1};
    return {static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(heads)))};
  }

  void mla(const std::string& prefix) {
    const MlaConfig& mla = config_.mla;
    const std::int64_t query = mla.heads * mla.query_dim(), value = mla.heads * mla.value_dim;
    if (mla.q_lora_rank > 0) {
      add(prefix + "q_a_proj.weight", {mla.q_lora_rank, config_.hidden}, Role::attention);
      add(prefix + "q_a_layernorm.weight", {mla.q_lora_rank}, Role::norm);
      add(prefix + "q_b_proj.weight", {query, mla.q_lora_rank}, Role::attention);
    } else {
      add(prefix + "q_proj.weight", {query, config_.hidden}, Role::attention);
    }
    add(prefix + "kv_a_proj_with_mqa.weight", {mla.kv_lora_rank + mla.rope_dim, config_.hidden}, Role::attention);
    add(prefix + "kv_a_layernorm.weight", {mla.kv_lora_rank}, Role::norm);
    add(prefix + "kv_b_proj.weight", {mla.heads * (mla.nope_dim + mla.value_dim), mla.kv_lora_rank}, Role::attention);
    if (mla.output_gate) add(prefix + "g_proj.weight", {value, config_.hidden}, Role::attention);
    add(prefix + "o_proj.weight", {config_.hidden, value}, Role::attention);
  }

  void depth(const std::string& prefix) {
    add(prefix + "_norm.weight", {config_.hidden}, Role::depth);
    add(prefix + "_proj.weight", {1, config_.hidden}, Role::depth);
  }

  void mlp(const std::string& prefix, std::int64_t width, Role role) {
    add(prefix + "gate_proj.weight", {width, config_.hidden}, role);
    add(prefix + "up_proj.weight", {width, config_.hidden}, role);
    add(prefix + "down_proj.weight", {config_.hidden, width}, role);
  }

  void moe(const std::string& prefix) {
    const MoeConfig& moe = config_.moe;
    const std::int64_t input = config_.expert_input_dim();
    add(prefix + "gate.weight", {moe.experts, config_.hidden}, Role::router);
    add(prefix + "gate.e_score_correction_bias", {moe.experts}, Role::router, Dtype::F32);
    if (moe.latent_dim > 0)
      add(prefix + "routed_expert_down_proj.weight", {moe.latent_dim, config_.hidden}, Role::latent);
    if (moe.latent_norm) add(prefix + "routed_expert_norm.weight", {moe.latent_dim}, Role::latent);
    if (moe.latent_dim > 0)
      add(prefix + "routed_expert_up_proj.weight", {config_.hidden, moe.latent_dim}, Role::latent);
    if (moe.shared_experts > 0)
      mlp(prefix + "shared_experts.", moe.shared_experts * moe.expert_dim, Role::shared_expert);
    for (std::int64_t expert = 0; expert < moe.experts; ++expert) {
      const std::string name = fmt::format("{}experts.{}.", prefix, expert);
      expert_matrix(name + "w1", moe.expert_dim, input);
      expert_matrix(name + "w3", moe.expert_dim, input);
      expert_matrix(name + "w2", input, moe.expert_dim);
    }
  }

  void expert_matrix(const std::string& name, std::int64_t out, std::int64_t in) {
    if (!config_.packed_experts) {
      add(name + ".weight", {out, in}, Role::routed_expert);
      return;
    }
    ExpectedTensor& codes = add(name + ".weight_packed", {out, in / 2}, Role::routed_expert, Dtype::U8);
    codes.parameters = out * in;
    codes.any_float = false;
    ExpectedTensor& scales = add(name + ".weight_scale", {out, in / kMxfp4Group}, Role::routed_expert, Dtype::U8);
    scales.parameters = 0;
    scales.any_float = false;
  }

  const ModelConfig& config_;
  std::vector<ExpectedTensor> tensors_;
};

}  // namespace

std::string text_prefix(const ModelConfig& config) { return config.family == Family::kimi_k3 ? "language_model." : ""; }

std::string layer_prefix(const ModelConfig& config, std::int64_t layer) {
  return fmt::format("{}model.layers.{}.", text_prefix(config), layer);
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  TensorList list(config);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) list.layer(layer);
  list.model_level();
  if (config.vision) list.vision(*config.vision);
  return list.take();
}

TensorTotals count_tensors(const ModelConfig& config, const std::vector<ExpectedTensor>& tensors) {
  TensorTotals totals;
  std::int64_t routed = 0;
  for (const ExpectedTensor& tensor : tensors) {
    ++totals.tensors;
    totals.parameters += tensor.parameters;
    totals.bytes += TensorSpec{tensor.name, tensor.dtype, tensor.shape}.bytes();
    if (tensor.role == Role::routed_expert) routed += tensor.parameters;
    else if (tensor.role == Role::vision || (tensor.role == Role::embedding && !config.tied_embeddings)) continue;
    else totals.active_parameters += tensor.parameters;
  }
  if (config.moe.experts > 0) totals.active_parameters += routed / config.moe.experts * config.moe.experts_per_token;
  return totals;
}

}  // namespace k3
