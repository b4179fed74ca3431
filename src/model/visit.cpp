#include "model/visit.h"

#include "checkpoint/names.h"

namespace k3 {
namespace {

// The alternative of a variant, kept as it is when the variant already holds it.
template <class Kind, class Variant>
Kind& hold(Variant& variant) {
  return std::holds_alternative<Kind>(variant) ? std::get<Kind>(variant) : variant.template emplace<Kind>();
}

class Walk {
 public:
  Walk(const ModelConfig& config, const std::function<void(Slot)>& visit) : c_(config), visit_(visit) {}

  void plain(const std::string& name, Tensor& tensor, std::vector<std::int64_t> shape, Init init = Init::normal, bool island = false) {
    visit_({name, &tensor, nullptr, std::move(shape), init, island});
  }
  void norm(const std::string& name, Tensor& tensor, std::int64_t dim) { plain(name, tensor, {dim}, Init::ones); }

  void kda(const std::string& p, KdaWeights& w) {
    const std::int64_t channels = c_.kda.channels(), dim = c_.kda.head_dim, taps = c_.kda.conv_taps;
    plain(p + "q_proj.weight", w.q_proj, {channels, c_.hidden});
    plain(p + "k_proj.weight", w.k_proj, {channels, c_.hidden});
    plain(p + "v_proj.weight", w.v_proj, {channels, c_.hidden});
    plain(p + "q_conv1d.weight", w.q_conv, {channels, taps}, Init::conv, true);
    plain(p + "k_conv1d.weight", w.k_conv, {channels, taps}, Init::conv, true);
    plain(p + "v_conv1d.weight", w.v_conv, {channels, taps}, Init::conv, true);
    plain(p + "f_a_proj.weight", w.f_a_proj, {dim, c_.hidden});
    plain(p + "f_b_proj.weight", w.f_b_proj, {channels, dim});
    plain(p + "dt_bias", w.dt_bias, {channels}, Init::dt_bias, true);
    plain(p + "A_log", w.a_log, {c_.kda.heads}, Init::a_log, true);
    plain(p + "b_proj.weight", w.b_proj, {c_.kda.heads, c_.hidden});
    if (c_.kda.full_rank_gate) {
      plain(p + "g_proj.weight", w.g_proj, {channels, c_.hidden});
    } else {
      plain(p + "g_a_proj.weight", w.g_a_proj, {dim, c_.hidden});
      plain(p + "g_b_proj.weight", w.g_b_proj, {channels, dim});
    }
    plain(p + "o_norm.weight", w.o_norm, {dim}, Init::ones, true);
    plain(p + "o_proj.weight", w.o_proj, {c_.hidden, channels});
  }

  void mla(const std::string& p, MlaWeights& w) {
    const MlaConfig& m = c_.mla;
    const std::int64_t query_rows = m.heads * m.query_dim();
    if (m.q_lora_rank > 0) {
      plain(p + "q_a_proj.weight", w.q_a_proj, {m.q_lora_rank, c_.hidden});
      norm(p + "q_a_layernorm.weight", w.q_a_norm, m.q_lora_rank);
      plain(p + "q_b_proj.weight", w.q_b_proj, {query_rows, m.q_lora_rank});
    } else {
      plain(p + "q_proj.weight", w.q_proj, {query_rows, c_.hidden});
    }
    plain(p + "kv_a_proj_with_mqa.weight", w.kv_a_proj, {m.kv_lora_rank + m.rope_dim, c_.hidden});
    norm(p + "kv_a_layernorm.weight", w.kv_a_norm, m.kv_lora_rank);
    plain(p + "kv_b_proj.weight", w.kv_b_proj, {m.heads * (m.nope_dim + m.value_dim), m.kv_lora_rank});
    if (m.output_gate) plain(p + "g_proj.weight", w.g_proj, {m.heads * m.value_dim, c_.hidden});
    plain(p + "o_proj.weight", w.o_proj, {c_.hidden, m.heads * m.value_dim});
  }

  void mlp(const std::string& p, MlpWeights& w, std::int64_t width) {
    plain(p + "gate_proj.weight", w.gate_proj, {width, c_.hidden});
    plain(p + "up_proj.weight", w.up_proj, {width, c_.hidden});
    plain(p + "down_proj.weight", w.down_proj, {c_.hidden, width});
  }

  void moe(const std::string& p, MoeWeights& w) {
    const MoeConfig& m = c_.moe;
    const std::int64_t expert_input = m.latent_dim > 0 ? m.latent_dim : c_.hidden;
    plain(p + "gate.weight", w.router, {m.experts, c_.hidden});
    plain(p + "gate.e_score_correction_bias", w.router_bias, {m.experts}, Init::zeros, true);
    if (m.latent_dim > 0) {
      plain(p + "routed_expert_down_proj.weight", w.latent_down, {m.latent_dim, c_.hidden});
      if (m.latent_norm) norm(p + "routed_expert_norm.weight", w.latent_norm, m.latent_dim);
      plain(p + "routed_expert_up_proj.weight", w.latent_up, {c_.hidden, m.latent_dim});
    }
    if (m.shared_experts > 0) {
      if (!w.shared) w.shared.emplace();
      mlp(p + "shared_experts.", *w.shared, m.shared_experts * m.expert_dim);
    }
    const auto stack = [&](const char* name, ops::ExpertMatrix& matrix, std::int64_t out, std::int64_t in) {
      visit_({p + "experts.*." + name + ".weight", nullptr, &matrix, {m.experts, out, in}, Init::normal, false});
    };
    stack("w1", w.experts.w1, m.expert_dim, expert_input);
    stack("w3", w.experts.w3, m.expert_dim, expert_input);
    stack("w2", w.experts.w2, expert_input, m.expert_dim);
  }

  void depth(const std::string& p, DepthWeights& w) {
    norm(p + "_norm.weight", w.norm, c_.hidden);
    plain(p + "_proj.weight", w.proj, {c_.hidden}, Init::zeros);
  }

  void layer(std::int64_t index, Layer& w) {
    const std::string p = layer_prefix(c_, index);
    norm(p + "input_layernorm.weight", w.input_norm, c_.hidden);
    norm(p + "post_attention_layernorm.weight", w.post_attention_norm, c_.hidden);
    if (c_.attn_res_block > 0) {
      depth(p + "self_attention_res", w.attention_mix);
      depth(p + "mlp_res", w.mlp_mix);
    }
    if (c_.is_kda[index]) kda(p + "self_attn.", hold<KdaWeights>(w.attention));
    else mla(p + "self_attn.", hold<MlaWeights>(w.attention));
    if (c_.is_moe(index)) moe(p + "block_sparse_moe.", hold<MoeWeights>(w.mlp));
    else mlp(p + "mlp.", hold<MlpWeights>(w.mlp), c_.dense_dim);
  }

 private:
  const ModelConfig& c_;
  const std::function<void(Slot)>& visit_;
};

}  // namespace

void visit_tensors(Model& model, const std::function<void(Slot)>& visit) {
  const ModelConfig& config = model.config;
  Walk walk(config, visit);
  const std::string prefix = text_prefix(config);
  model.layers.resize(config.layers);
  walk.plain(prefix + "model.embed_tokens.weight", model.embedding, {config.vocab, config.hidden});
  for (std::int64_t index = 0; index < config.layers; ++index) walk.layer(index, model.layers[index]);
  walk.norm(prefix + "model.norm.weight", model.norm, config.hidden);
  if (config.attn_res_block > 0) walk.depth(prefix + "model.output_attn_res", model.output_mix);
  if (!config.tied_embeddings) walk.plain(prefix + "lm_head.weight", model.head, {config.vocab, config.hidden});
}

std::string expert_name(const std::string& stack_name, std::int64_t expert) {
  std::string name = stack_name;
  const std::size_t star = name.find(".*.");
  return name.replace(star + 1, 1, std::to_string(expert));
}

}  // namespace k3
