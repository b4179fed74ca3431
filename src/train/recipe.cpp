#include "train/recipe.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "train/recipe_fields.h"

namespace k3::train {
namespace {

using nlohmann::json;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

json value_of(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  const char* end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto parsed = std::from_chars(text.data(), end, whole); parsed.ec == std::errc() && parsed.ptr == end)
    return whole;
  double real = 0;
  if (const auto parsed = std::from_chars(text.data(), end, real); parsed.ec == std::errc() && parsed.ptr == end)
    return real;
  return text;
}

// [model] holds the keys of text_config, [model.linear_attn_config] those of that object: together the text of a
// config.json. parse_config then names every key that it does not know.
std::string model_config(RecipeFields& fields) {
  static const std::set<std::string> kLists = {"kda_layers", "full_attn_layers"};
  json text;
  const auto put = [&](json& object, const std::string& table, const std::string& name) {
    const std::vector<std::string> values = fields.list(table + "." + name);
    if (kLists.contains(name) || values.size() > 1) {
      object[name] = json::array();
      for (const std::string& value : values) object[name].push_back(value_of(value));
    } else {
      object[name] = value_of(values.front());
    }
  };
  std::string family = "kimi_k3";
  for (const std::string& name : fields.keys_in("model")) {
    if (name == "family") {
      family = fields.text("model.family");
    } else {
      put(text, "model", name);
    }
  }
  for (const std::string& name : fields.keys_in("model.linear_attn_config"))
    put(text["linear_attn_config"], "model.linear_attn_config", name);
  if (family == "kimi_linear") {
    text["model_type"] = "kimi_linear";
    text["architectures"] = {"KimiLinearForCausalLM"};
    return text.dump();
  }
  if (family != "kimi_k3")
    throw_user("{} must be kimi_k3 or kimi_linear, got {}", fields.where("model.family"), family);
  text["model_type"] = "kimi_linear";
  json whole = {{"model_type", "kimi_k3"}, {"architectures", {"KimiK3ForConditionalGeneration"}}};
  for (const char* shared : {"bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings"})
    if (text.contains(shared)) whole[shared] = text[shared];
  whole["text_config"] = text;
  return whole.dump();
}

SourceRecipe source(RecipeFields& fields, const std::string& table, const std::string& name) {
  const std::string at = table + "." + name + ".";
  SourceRecipe source;
  source.name = name;
  source.heldout = table == "validation";
  source.kind = fields.text(at + "kind");
  if (source.kind == "generator") {
    source.generator = fields.text(at + "generator");
    source.documents = fields.integer(at + "documents", 1);
    source.filler = fields.text(at + "filler", "");
  } else if (source.kind == "jsonl" || source.kind == "txt" || source.kind == "conversation") {
    source.paths = fields.list(at + "path");
    if (source.kind == "jsonl") source.field = fields.text(at + "field", "text");
  } else {
    throw_user("{} must be jsonl, txt, conversation or generator, got {}", fields.where(at + "kind"), source.kind);
  }
  return source;
}

StageRecipe stage(RecipeFields& fields, const std::string& name, const std::vector<SourceRecipe>& sources) {
  const std::string at = "stage." + name + ".";
  StageRecipe stage;
  stage.name = name;
  stage.tokens = fields.integer(at + "tokens", 1);
  stage.batch_tokens = fields.integer(at + "batch_tokens", 2);
  stage.micro_batch_tokens = fields.integer(at + "micro_batch_tokens", 2, stage.batch_tokens);
  stage.context = fields.integer(at + "context", 2);
  stage.learning_rate = fields.number(at + "learning_rate", 0, kInfinity);
  stage.final_learning_rate = fields.number(at + "final_learning_rate", 0, kInfinity, 0.1 * stage.learning_rate);
  stage.warmup = fields.number(at + "warmup", 0, 1, 0.01);
  if (stage.batch_tokens % stage.micro_batch_tokens != 0)
    throw_user("{} ({}) must be a multiple of micro_batch_tokens ({})", fields.where(at + "batch_tokens"),
               stage.batch_tokens, stage.micro_batch_tokens);
  if (stage.context > stage.micro_batch_tokens)
    throw_user("{} ({}) must not exceed micro_batch_tokens ({})", fields.where(at + "context"), stage.context,
               stage.micro_batch_tokens);
  for (const std::string& source : fields.keys_in("stage." + name + ".mixture")) {
    const std::string key = at + "mixture." + source;
    if (std::none_of(sources.begin(), sources.end(), [&](const SourceRecipe& known) { return known.name == source; }))
      throw_user("{} names no source; add a table [data.{}]", fields.where(key), source);
    const double share = fields.number(key, 0, kInfinity);
    if (share > 0) stage.mixture.emplace_back(source, share);
  }
  if (stage.mixture.empty())
    throw_user("{} is empty; give at least one source a share", fields.where("stage." + name + ".mixture"));
  return stage;
}

}  // namespace

std::int64_t Recipe::steps() const {
  std::int64_t total = 0;
  for (const StageRecipe& stage : stages) total += stage.steps();
  return total;
}

Setting parse_setting(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw_user("--set {}: write key=value, for example --set stage.pretrain.tokens=1e6", text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Recipe read_recipe(const std::filesystem::path& path, const std::vector<Setting>& settings) {
  RecipeFields fields(path, settings);
  Recipe recipe;
  recipe.path = path;
  recipe.seed = static_cast<std::uint64_t>(fields.integer("seed", 0, 1));
  recipe.tokenizer = fields.text("tokenizer");
  recipe.shards = fields.text("shards", "");
  recipe.init = fields.text("model.init", "");
  if (recipe.init.empty()) recipe.model_config = model_config(fields);

  recipe.dtype = fields.text("train.dtype", "");
  if (!recipe.dtype.empty() && recipe.dtype != "float32" && recipe.dtype != "bfloat16")
    throw_user("{} must be float32 or bfloat16, got {}", fields.where("train.dtype"), recipe.dtype);
  recipe.quantize_experts = fields.boolean("train.quantize_experts", false);
  recipe.tf32 = fields.boolean("train.tf32", true);
  recipe.log_every = fields.integer("train.log_every", 1, recipe.log_every);
  recipe.checkpoint_every = fields.integer("train.checkpoint_every", 0, recipe.checkpoint_every);
  recipe.keep_checkpoints = fields.integer("train.keep_checkpoints", 1, recipe.keep_checkpoints);
  recipe.validate_every = fields.integer("train.validate_every", 0, recipe.validate_every);
  recipe.validation_tokens = fields.integer("train.validation_tokens", 2, recipe.validation_tokens);
  recipe.peak_flops = fields.number("train.peak_flops", 0, kInfinity, 0.0);

  OptimizerOptions& optimizer = recipe.optimizer;
  optimizer.momentum = fields.number("optimizer.momentum", 0, 1, optimizer.momentum);
  optimizer.weight_decay = fields.number("optimizer.weight_decay", 0, 1, optimizer.weight_decay);
  optimizer.beta1 = fields.number("optimizer.beta1", 0, 0.999999, optimizer.beta1);
  optimizer.beta2 = fields.number("optimizer.beta2", 0, 0.999999, optimizer.beta2);
  optimizer.epsilon = fields.number("optimizer.epsilon", 0, 1, optimizer.epsilon);
  optimizer.clip_norm = fields.number("optimizer.clip_norm", 0, kInfinity, optimizer.clip_norm);
  optimizer.adamw_rate_scale = fields.number("optimizer.adamw_rate_scale", 0, kInfinity, optimizer.adamw_rate_scale);
  optimizer.newton_schulz = fields.text("optimizer.newton_schulz", optimizer.newton_schulz);
  optimizer.quantize_experts = recipe.quantize_experts;
  newton_schulz_table(optimizer.newton_schulz);  // refuses unknown names

  for (const std::string& name : fields.tables("data")) recipe.data.push_back(source(fields, "data", name));
  for (const std::string& name : fields.tables("validation"))
    recipe.validation.push_back(source(fields, "validation", name));
  for (const std::string& name : fields.tables("stage")) recipe.stages.push_back(stage(fields, name, recipe.data));
  if (recipe.stages.empty()) throw_user("{}: there is no [stage.NAME]; add one", path.string());
  fields.refuse_unused();
  for (const auto& [key, values] : fields.all()) {
    std::string& joined = recipe.keys[key];
    for (const std::string& value : values) joined += (joined.empty() ? "" : ", ") + value;
  }
  return recipe;
}

}  // namespace k3::train
