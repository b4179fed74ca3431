// config.json -> ModelConfig. The keys and the meaning of absent ones: checkpoint.md 1.2-1.6; the dialect of
// transformers 5 replaces linear_attn_config and first_k_dense_replace by layer_types, mlp_layer_types and linear_*
// keys.
#include "checkpoint/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/json_text.h"

namespace k3 {

using Json = nlohmann::json;

namespace {

// Upper limits: far above any model of this family, low enough that no product of them overflows or exhausts memory.
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24, kMaxWidth = std::int64_t{1} << 20, kMaxLayers = 4096,
                       kMaxHeads = 16384, kMaxHeadDim = 16384, kMaxExperts = 65536, kMaxContext = std::int64_t{1} << 40;
constexpr std::int64_t kMaxExpertsOfAllLayers = 4'000'000;  // Kimi K3 has 82,432
constexpr double kMaxParameters = 1e15;                     // Kimi K3 has 2.8e12
constexpr std::int64_t kMaxConfigBytes = 4 << 20;           // the published one has 7,006

// What PreTrainedConfig of Transformers writes into every file: settings of its Python side and of its sampling, never
// of the network.
const std::set<std::string> kTransformersBoilerplate = {
    "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "_commit_hash",
    "_attn_implementation", "_attn_implementation_autoset", "return_dict", "output_hidden_states",
    "output_attentions", "output_router_logits", "torchscript", "use_bfloat16", "tf_legacy_loss", "pruned_heads",
    "chunk_size_feed_forward", "is_encoder_decoder", "is_decoder", "cross_attention_hidden_size",
    "add_cross_attention", "tie_encoder_decoder", "use_cache", "max_length", "min_length", "do_sample",
    "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p",
    "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "finetuning_task", "id2label", "label2id", "tokenizer_class", "prefix", "sep_token_id",
    "cls_token_id", "decoder_start_token_id", "task_specific_params", "problem_type", "ignore_index",
    "image_placeholder", "pretraining_tp", "attention_dropout"};

// Fields of other attention kinds that the published files carry: without rotary embedding they select nothing
// (checkpoint.md 1.6).
const std::set<std::string> kDeadFields = {"head_dim", "rope_theta", "rope_scaling", "rope_parameters"};

void read_token_ids(ConfigFields& fields, ModelConfig& config) {
  const auto read = [&](const char* key, std::int64_t& id) { id = fields.integer_or(key, id, 0, kMaxVocab - 1); };
  read("bos_token_id", config.bos);
  read("eos_token_id", config.eos);
  read("pad_token_id", config.pad);
  read("media_placeholder_token_id", config.media_placeholder);
}

// Layer lists of the file count from 1; every layer must be in exactly one of them.
std::vector<bool> kinds_from_lists(ConfigFields& linear, std::int64_t layers) {
  std::vector<int> seen(static_cast<std::size_t>(layers), 0);
  std::vector<bool> is_kda(static_cast<std::size_t>(layers), false);
  for (const bool kda : {true, false}) {
    const char* key = kda ? "kda_layers" : "full_attn_layers";
    for (const std::int64_t layer : linear.integers(key, 1, layers)) {
      const auto at = static_cast<std::size_t>(layer - 1);
      if (seen[at]++ > 0)
        linear.fail(key, fmt::format("names layer {}, which is listed already; list each layer once (from 1)", layer));
      is_kda[at] = kda;
    }
  }
  for (std::size_t at = 0; at < seen.size(); ++at)
    if (seen[at] == 0)
      linear.fail(
          "kda_layers",
          fmt::format("and full_attn_layers both lack layer {}; every layer (from 1) must be in one of them", at + 1));
  return is_kda;
}

std::vector<bool> kinds_from_types(ConfigFields& fields, std::int64_t layers) {
  const std::vector<std::string> types = fields.texts("layer_types");
  if (static_cast<std::int64_t>(types.size()) != layers)
    fields.fail("layer_types", fmt::format("has {} entries for {} layers", types.size(), layers));
  std::vector<bool> is_kda;
  for (const std::string& type : types) {
    if (type != "linear_attention" && type != "full_attention")
      fields.fail("layer_types", "must hold only linear_attention and full_attention");
    is_kda.push_back(type == "linear_attention");
  }
  return is_kda;
}

// linear_attn_config as published, the linear_* keys of transformers 5, or both when they agree.
void read_attention_kinds(ConfigFields& fields, ModelConfig& config) {
  const Json* published = fields.object("linear_attn_config");
  if (published == nullptr && !fields.has("layer_types"))
    fields.fail("linear_attn_config", "is missing; it says which layers are KDA and how large their heads are");
  if (published != nullptr) {
    ConfigFields linear(*published, fields.file(), fields.place("linear_attn_config") + ".");
    config.kda.heads = linear.integer("num_heads", 1, kMaxHeads);
    config.kda.head_dim = linear.integer("head_dim", 1, kMaxHeadDim);
    config.kda.conv_taps = linear.integer("short_conv_kernel_size", 1, 64);
    if (linear.has("gate_lower_bound")) {
      config.kda.gate_lower_bound = linear.real("gate_lower_bound", -1000.0, 0.0);
      if (*config.kda.gate_lower_bound == 0.0)
        linear.fail("gate_lower_bound", "is 0; must be negative (a decay of 0 forgets nothing)");
    }
    linear.without_effect({"gate_lower_bound"});
    config.kda.full_rank_gate = linear.boolean_or("use_full_rank_gate", false);
    config.is_kda = kinds_from_lists(linear, config.layers);
    linear.finish();
  }
  const auto read_native = [&](const char* key, std::int64_t& value, std::int64_t high) {
    if (published == nullptr) value = fields.integer(key, 1, high);
    else if (fields.integer_or(key, value, 1, high) != value)
      fields.fail(key, "contradicts linear_attn_config; remove one of them");
  };
  read_native("linear_num_heads", config.kda.heads, kMaxHeads);
  read_native("linear_head_dim", config.kda.head_dim, kMaxHeadDim);
  read_native("linear_conv_kernel_dim", config.kda.conv_taps, 64);
  if (fields.has("layer_types")) {
    const std::vector<bool> types = kinds_from_types(fields, config.layers);
    if (published != nullptr && types != config.is_kda)
      fields.fail("layer_types", "contradicts linear_attn_config; remove one of them");
    config.is_kda = types;
  }
  fields.without_effect({"layer_types"});
  if (config.kda.channels() > kMaxWidth)
    fields.fail("linear_attn_config",
                fmt::format("makes {} channels (num_heads x head_dim); at most {}", config.kda.channels(), kMaxWidth));
}

void read_mla(ConfigFields& fields, ModelConfig& config) {
  MlaConfig& mla = config.mla;
  mla.heads = fields.integer("num_attention_heads", 1, kMaxHeads);
  if (fields.integer_or("num_key_value_heads", mla.heads, 1, kMaxHeads) != mla.heads)
    fields.fail("num_key_value_heads",
                "differs from num_attention_heads; MLA shares one latent among all heads, so they must be equal");
  mla.q_lora_rank = fields.integer_or("q_lora_rank", 0, 0, kMaxWidth);
  mla.kv_lora_rank = fields.integer("kv_lora_rank", 1, kMaxWidth);
  mla.nope_dim = fields.integer("qk_nope_head_dim", 1, kMaxHeadDim);
  mla.rope_dim = fields.integer("qk_rope_head_dim", 0, kMaxHeadDim);
  mla.value_dim = fields.integer("v_head_dim", 1, kMaxHeadDim);
  mla.output_gate = fields.boolean_or("mla_use_output_gate", false);
  if (fields.integer_or("qk_head_dim", mla.query_dim(), 1, 2 * kMaxHeadDim) != mla.query_dim())
    fields.fail("qk_head_dim", "differs from qk_nope_head_dim + qk_rope_head_dim");
  if (mla.heads * (mla.query_dim() + mla.value_dim) > 4 * kMaxWidth)
    fields.fail("num_attention_heads", "times the head dimensions is too large");
  // transformers 5 knows kimi_linear only without rotary embedding and does not write the key.
  if (!fields.has("mla_use_nope") && !fields.has("layer_types"))
    fields.fail("mla_use_nope", "is missing; must be true (rotary embeddings are not supported)");
  fields.must_be("mla_use_nope", true);
}

// mlp_layer_types of transformers 5: dense layers first, then sparse ones.
std::int64_t first_sparse(ConfigFields& fields, std::int64_t layers) {
  const std::vector<std::string> types = fields.texts("mlp_layer_types");
  if (static_cast<std::int64_t>(types.size()) != layers)
    fields.fail("mlp_layer_types", fmt::format("has {} entries for {} layers", types.size(), layers));
  const auto first = std::find(types.begin(), types.end(), "sparse");
  if (!std::all_of(types.begin(), first, [](const std::string& type) { return type == "dense"; }) ||
      !std::all_of(first, types.end(), [](const std::string& type) { return type == "sparse"; }))
    fields.fail("mlp_layer_types", "must be dense layers followed by sparse layers");
  return first - types.begin();
}

void read_moe(ConfigFields& fields, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  const std::set<std::string> keys = {"num_experts_per_token",     "num_shared_experts",    "moe_intermediate_size",
                                      "routed_expert_hidden_size", "latent_moe_use_norm",   "moe_renormalize",
                                      "routed_scaling_factor",     "first_k_dense_replace", "moe_layer_freq",
                                      "mlp_layer_types",           "use_grouped_topk"};
  fields.must_be("moe_router_activation_func", "sigmoid");
  fields.must_be("topk_method", "noaux_tc");
  fields.must_be("num_expert_group", 1);
  fields.must_be("topk_group", 1);
  moe.experts = fields.integer_or("num_experts", 0, 0, kMaxExperts);
  fields.without_effect(keys);
  if (moe.experts == 0) return;
  moe.experts_per_token = fields.integer("num_experts_per_token", 1, kMaxExperts);
  if (moe.experts_per_token > moe.experts)
    fields.fail("num_experts_per_token",
                fmt::format("is {}, more than num_experts ({})", moe.experts_per_token, moe.experts));
  moe.shared_experts = fields.integer_or("num_shared_experts", 0, 0, 1024);
  moe.expert_dim = fields.integer("moe_intermediate_size", 1, kMaxWidth);
  moe.latent_dim = fields.integer_or("routed_expert_hidden_size", 0, 0, kMaxWidth);
  moe.latent_norm = moe.latent_dim > 0 && fields.boolean_or("latent_moe_use_norm", false);
  moe.renormalize = fields.boolean_or("moe_renormalize", true);
  moe.routed_scaling_factor = fields.real_or("routed_scaling_factor", 1.0, 1e-6, 1e6);
  moe.layer_freq = fields.integer_or("moe_layer_freq", 1, 1, kMaxLayers);
  moe.first_dense = fields.integer_or("first_k_dense_replace", 0, 0, kMaxLayers);
  if (fields.has("mlp_layer_types")) {
    const std::int64_t first = first_sparse(fields, config.layers);
    if (moe.layer_freq != 1 ||
        (fields.has("first_k_dense_replace") && std::min(moe.first_dense, config.layers) != first))
      fields.fail("mlp_layer_types", "contradicts first_k_dense_replace and moe_layer_freq; remove one of them");
    moe.first_dense = first;
  }
  if (moe.experts * config.layers > kMaxExpertsOfAllLayers)
    fields.fail("num_experts", fmt::format("times num_hidden_layers is {}; at most {}", moe.experts * config.layers,
                                           kMaxExpertsOfAllLayers));
}

// Only one scheme exists in this family: compressed-tensors, MXFP4 codes packed in bytes, one E8M0 scale for 32
// columns.
void read_quantization(const Json& object, const std::string& file, const std::string& path) {
  ConfigFields fields(object, file, path);
  fields.must_be("quant_method", "compressed-tensors");
  if (!fields.has("format")) fields.fail("format", "is missing; only \"mxfp4-pack-quantized\" is supported");
  fields.must_be("format", "mxfp4-pack-quantized");
  fields.must_be("quantization_status", "compressed");
  fields.must_be("kv_cache_scheme", nullptr);
  fields.without_effect(
      {"global_compression_ratio", "ignore", "version"});  // which tensors are packed is decided by their names
  const Json* groups = fields.object("config_groups");
  if (groups == nullptr) fields.fail("config_groups", "is missing");
  for (const auto& [name, group_object] : groups->items()) {
    ConfigFields group(group_object, file, fields.place("config_groups") + "." + name + ".");
    group.must_be("format", "mxfp4-pack-quantized");
    group.must_be("input_activations", nullptr);
    group.must_be("output_activations", nullptr);
    group.without_effect({"targets"});
    const Json* weights_object = group.object("weights");
    if (weights_object == nullptr) group.fail("weights", "is missing");
    ConfigFields weights(*weights_object, file, group.place("weights") + ".");
    weights.must_be("num_bits", 4);
    weights.must_be("type", "float");
    weights.must_be("strategy", "group");
    weights.must_be("group_size", 32);
    weights.must_be("symmetric", true);
    weights.must_be("dynamic", false);
    weights.must_be("scale_dtype", "torch.uint8");
    weights.must_be("actorder", nullptr);
    weights.must_be("block_structure", nullptr);
    weights.without_effect({"observer", "observer_kwargs", "zp_dtype"});
    weights.finish();
    group.finish();
  }
  fields.finish();
}

VisionConfig read_vision(const Json& object, const std::string& file, std::int64_t text_hidden) {
  ConfigFields fields(object, file, "vision_config.");
  VisionConfig vision;
  vision.layers = fields.integer("vt_num_hidden_layers", 1, kMaxLayers);
  vision.hidden = fields.integer("vt_hidden_size", 1, kMaxWidth);
  vision.intermediate = fields.integer("vt_intermediate_size", 1, kMaxWidth);
  vision.heads = fields.integer("vt_num_attention_heads", 1, kMaxHeads);
  vision.qkv_hidden = fields.integer_or("qkv_hidden_size", vision.hidden, 1, kMaxWidth);
  vision.patch = fields.integer_or("patch_size", vision.patch, 1, 1024);
  vision.pos_height = fields.integer_or("init_pos_emb_height", vision.pos_height, 1, 4096);
  vision.pos_width = fields.integer_or("init_pos_emb_width", vision.pos_width, 1, 4096);
  vision.pos_time = fields.integer_or("init_pos_emb_time", vision.pos_time, 1, 4096);
  if (fields.has("merge_kernel_size")) {
    const std::vector<std::int64_t> merge = fields.integers("merge_kernel_size", 1, 64);
    if (merge.size() != 2) fields.fail("merge_kernel_size", "must have two entries, height and width");
    vision.merge_height = merge[0], vision.merge_width = merge[1];
  }
  fields.without_effect({"merge_kernel_size"});
  vision.text_hidden = fields.integer_or("text_hidden_size", text_hidden, 1, kMaxWidth);
  if (vision.text_hidden != text_hidden)
    fields.fail("text_hidden_size",
                fmt::format("is {}, but text_config.hidden_size is {}", vision.text_hidden, text_hidden));
  if (fields.integer_or("mm_hidden_size", vision.hidden, 1, kMaxWidth) != vision.hidden)
    fields.fail("mm_hidden_size", fmt::format("differs from vt_hidden_size ({})", vision.hidden));
  if (vision.qkv_hidden % vision.heads != 0 || vision.qkv_hidden / vision.heads % 4 != 0)
    fields.fail("qkv_hidden_size",
                fmt::format("is {}; must be heads ({}) times a multiple of 4 (two rotary axes of pairs)",
                            vision.qkv_hidden, vision.heads));
  if (vision.hidden % 2 != 0) fields.fail("vt_hidden_size", "must be even (sine and cosine halves of the time table)");
  fields.must_be("merge_type", "sd2_tpool");
  fields.must_be("pos_emb_type", "divided_fixed");
  fields.must_be("pos_emb_interpolation_mode", "bilinear");
  fields.must_be("norm_type", "rmsnorm");
  fields.must_be("mlp_type", "mlp2");
  fields.must_be("mm_projector_type", "patchmergerv2");
  fields.must_be("activation_func", "gelu_pytorch_tanh");
  fields.must_be("projector_hidden_act", "gelu");
  fields.must_be("projector_ln_eps", 1e-5);
  for (const char* key : {"attn_bias", "linear_bias", "patch_embed_proj_bias"}) fields.must_be(key, false);
  fields.without_effect({"model_type"});
  fields.without_effect(kTransformersBoilerplate);
  fields.finish();
  return vision;
}

void read_text(ConfigFields& fields, ModelConfig& config) {
  config.vocab = fields.integer("vocab_size", 1, kMaxVocab);
  config.hidden = fields.integer("hidden_size", 1, kMaxWidth);
  config.layers = fields.integer("num_hidden_layers", 1, kMaxLayers);
  config.dense_dim = fields.integer("intermediate_size", 1, kMaxWidth);
  const std::string activation = fields.text("hidden_act");
  if (activation != "situ" && activation != "silu")
    fields.fail("hidden_act", "must be \"situ\" (Kimi K3) or \"silu\" (Kimi Linear)");
  config.activation = activation == "situ" ? Activation::situ : Activation::swiglu;
  if (config.activation == Activation::situ) {
    const double beta = fields.real_or("activation_situ_beta", 0.0, 0.0, 1e6);
    config.situ_beta = beta == 0.0 ? 1.0 : beta;
    config.situ_linear_beta = fields.real_or("activation_situ_linear_beta", 0.0, 0.0, 1e6);
  }
  fields.without_effect({"activation_situ_beta", "activation_situ_linear_beta"});  // silu has no caps
  config.norm_eps = fields.real("rms_norm_eps", 1e-12, 1.0);
  config.initializer_range = fields.real_or("initializer_range", 0.02, 0.0, 10.0);
  const char* length = fields.has("max_position_embeddings") ? "max_position_embeddings" : "model_max_length";
  if (!fields.has(length)) fields.fail("max_position_embeddings", "is missing (or model_max_length)");
  config.max_context = fields.integer(length, 1, kMaxContext);
  fields.without_effect({"max_position_embeddings", "model_max_length"});
  config.attn_res_block = fields.integer_or("attn_res_block_size", 0, 0, kMaxLayers);
  config.tied_embeddings = fields.boolean_or("tie_word_embeddings", false);
  read_attention_kinds(fields, config);
  read_mla(fields, config);
  read_moe(fields, config);
  read_token_ids(fields, config);
  fields.must_be("num_nextn_predict_layers", 0);
  fields.must_be("attention_bias", false);
  fields.without_effect(kTransformersBoilerplate);
  fields.without_effect(kDeadFields);
}

double rough_parameters(const ModelConfig& config) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const MoeConfig& moe = config.moe;
  const double attention =
      number(config.hidden) *
      number(6 * config.kda.channels() + 2 * config.mla.heads * (config.mla.query_dim() + config.mla.value_dim));
  const double experts =
      3.0 * number(moe.expert_dim) *
      (number(moe.experts) * number(config.expert_input_dim()) + number(moe.shared_experts) * number(config.hidden));
  return 2.0 * number(config.vocab) * number(config.hidden) +
         number(config.layers) * (attention + experts + 3.0 * number(config.dense_dim) * number(config.hidden));
}

void check_together(const ModelConfig& config, const std::string& file) {
  if (rough_parameters(config) > kMaxParameters)
    throw_user("{}: these sizes make about {:.0e} parameters; at most {:.0e} are supported, check the sizes", file,
               rough_parameters(config), kMaxParameters);
  const std::pair<const char*, std::int64_t> ids[] = {{"bos_token_id", config.bos},
                                                      {"eos_token_id", config.eos},
                                                      {"pad_token_id", config.pad},
                                                      {"media_placeholder_token_id", config.media_placeholder}};
  for (const auto& [key, id] : ids)
    if (id >= config.vocab) throw_user("{}: {} is {}, but vocab_size is {}", file, key, id, config.vocab);
  if (config.packed_experts && config.moe.experts == 0)
    throw_user("{}: quantization_config needs routed experts, but num_experts is 0", file);
  if (config.packed_experts && (config.moe.expert_dim % 32 != 0 || config.expert_input_dim() % 32 != 0))
    throw_user(
        "{}: MXFP4 needs expert widths that are multiples of 32; moe_intermediate_size is {}, the experts read {}",
        file, config.moe.expert_dim, config.expert_input_dim());
}

}  // namespace

std::int64_t ModelConfig::kda_layers() const { return std::count(is_kda.begin(), is_kda.end(), true); }
std::int64_t ModelConfig::mla_layers() const { return layers - kda_layers(); }
std::int64_t ModelConfig::moe_layers() const {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) count += is_moe(layer) ? 1 : 0;
  return count;
}

ModelConfig parse_config(const std::string& text, const std::string& name) {
  if (static_cast<std::int64_t>(text.size()) > kMaxConfigBytes)
    throw_user("{}: is {} bytes long; a config.json has a few thousand, so this is another file", name, text.size());
  const Json root = parse_json_tree(text, name);
  ConfigFields top(root, name, "");
  const std::string type = top.text("model_type");
  ModelConfig config;
  const Json* quantization = top.object("quantization_config");
  std::string quantization_path = "quantization_config.";
  if (type == "kimi_linear") {
    config.family = Family::kimi_linear;
    read_text(top, config);
  } else if (type == "kimi_k3") {
    config.family = Family::kimi_k3;
    const Json* text_object = top.object("text_config");
    if (text_object == nullptr) top.fail("text_config", "is missing; it holds the text model");
    ConfigFields fields(*text_object, name, "text_config.");
    fields.must_be("model_type", "kimi_linear");
    read_text(fields, config);
    if (const Json* inner = fields.object("quantization_config"); inner != nullptr) {
      if (quantization != nullptr)
        top.fail("quantization_config", "is also in text_config; keep the one in text_config");
      quantization = inner;
      quantization_path = "text_config.quantization_config.";
    }
    fields.finish();
    read_token_ids(top, config);  // the wrapper's ids are those that generation uses
    if (top.boolean_or("tie_word_embeddings", config.tied_embeddings) != config.tied_embeddings)
      top.fail("tie_word_embeddings", "contradicts text_config.tie_word_embeddings; make them equal");
    if (const Json* vision = top.object("vision_config"); vision != nullptr)
      config.vision = read_vision(*vision, name, config.hidden);
    top.without_effect(kTransformersBoilerplate);
  } else {
    top.fail("model_type", fmt::format("is {}; must be kimi_k3 or kimi_linear",
                                       Json(type).dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60)));
  }
  top.finish();
  if (quantization != nullptr) read_quantization(*quantization, name, quantization_path);
  config.packed_experts = quantization != nullptr;
  check_together(config, name);
  return config;
}

ModelConfig read_config(const std::filesystem::path& path) {
  const std::filesystem::path file = std::filesystem::is_directory(path) ? path / "config.json" : path;
  return parse_config(read_file(file), file.string());
}

}  // namespace k3
