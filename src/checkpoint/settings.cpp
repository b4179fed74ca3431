// "key=value" settings on the text of a config.json.
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/published.h"
#include "checkpoint/random_checkpoint.h"

namespace k3 {

using Json = nlohmann::ordered_json;

namespace {

struct Setting {
  std::string path;
  Json value;
};

Setting parse_setting(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw_user("--set {}: write key=value, for example num_hidden_layers=4 or linear_attn_config.head_dim=64", text);
  Setting setting{text.substr(0, equals), Json::parse(text.substr(equals + 1), nullptr, false)};
  if (setting.value.is_discarded()) setting.value = text.substr(equals + 1);  // a word without quotes
  return setting;
}

void put(Json& root, const std::string& path, const Json& value) {
  Json* at = &root;
  std::string rest = path;
  for (auto dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
    Json& inner = (*at)[rest.substr(0, dot)];
    if (!inner.is_object() && !inner.is_null()) throw_user("--set {}: {} is not an object", path, rest.substr(0, dot));
    at = &inner;
    rest = rest.substr(dot + 1);
  }
  if (rest.empty()) throw_user("--set {}: the key is empty", path);
  (*at)[rest] = value;
}

Json layer_list(const std::vector<bool>& is_kda, bool kda) {
  Json list = Json::array();
  for (std::size_t layer = 0; layer < is_kda.size(); ++layer)
    if (is_kda[layer] == kda) list.push_back(layer + 1);
  return list;
}

// Token ids keep their distance from the end of the vocabulary, where the control tokens are.
void move_token_ids(Json& object, std::int64_t moved_by, const std::set<std::string>& set) {
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "media_placeholder_token_id"})
    if (object.contains(key) && object[key].is_number_integer() && !set.contains(key))
      object[key] = object[key].get<std::int64_t>() + moved_by;
}

}  // namespace

std::string with_settings(const std::string& config_text, const std::vector<std::string>& settings) {
  Json root = Json::parse(config_text);
  const bool wrapped = root.contains("text_config");
  Json& text = wrapped ? root["text_config"] : root;
  const Json vocab_before = text["vocab_size"];
  std::set<std::string> set;
  for (const std::string& line : settings) {
    Setting setting = parse_setting(line);
    if (setting.path.starts_with("text_config."))
      setting.path = setting.path.substr(std::string_view("text_config.").size());
    const std::string first = setting.path.substr(0, setting.path.find('.'));
    if (wrapped && root.contains(first)) put(root, setting.path, setting.value);
    if (!wrapped || !root.contains(first) || text.contains(first)) put(text, setting.path, setting.value);
    set.insert(setting.path);
  }
  const auto whole = [&](const char* key) { return set.contains(key) && text[key].is_number_integer(); };
  if (whole("num_hidden_layers") && text["linear_attn_config"].is_object() && !set.contains("linear_attn_config")) {
    const std::vector<bool> is_kda =
        published_layer_pattern(std::clamp<std::int64_t>(text["num_hidden_layers"].get<std::int64_t>(), 0, 100'000));
    Json& linear = text["linear_attn_config"];
    for (const bool kda : {true, false}) {
      const std::string key = kda ? "kda_layers" : "full_attn_layers";
      if (!set.contains("linear_attn_config." + key)) linear[key] = layer_list(is_kda, kda);
    }
  }
  if (whole("vocab_size") && vocab_before.is_number_integer()) {
    const std::int64_t moved_by = text["vocab_size"].get<std::int64_t>() - vocab_before.get<std::int64_t>();
    move_token_ids(text, moved_by, set);
    if (wrapped) move_token_ids(root, moved_by, set);
  }
  if (whole("num_attention_heads") && !set.contains("num_key_value_heads"))
    text["num_key_value_heads"] = text["num_attention_heads"];
  if (whole("hidden_size") && root.contains("vision_config") && root["vision_config"].is_object() &&
      !set.contains("vision_config.text_hidden_size"))
    root["vision_config"]["text_hidden_size"] = text["hidden_size"];
  try {
    return root.dump(2) + "\n";
  } catch (const Json::type_error&) {
    throw_user("--set: a key or value is not valid UTF-8 text");
  }
}

}  // namespace k3
