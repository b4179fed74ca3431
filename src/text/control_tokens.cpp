#include "text/control_tokens.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"

namespace k3 {
namespace {

using json = nlohmann::json;

struct NamedOffset {
  int offset;  // above the top rank; K3's id minus 163,584
  const char* name;
};

constexpr NamedOffset kK3Names[] = {
    {0, "[BOS]"},
    {1, "[EOS]"},
    {2, "<|end_of_msg|>"},
    {3, "<|open|>"},
    {4, "<|close|>"},
    {5, "<|sep|>"},
    {6, "[start_header_id]"},
    {7, "[end_header_id]"},
    {9, "[EOT]"},
    {18, "<|media_begin|>"},
    {19, "<|media_content|>"},
    {20, "<|media_end|>"},
    {21, "<|media_pad|>"},
    {65, "<osagent_mode>"},
    {254, "[UNK]"},
    {255, "[PAD]"},
};

void name_from_config(std::vector<std::string>& names, std::int64_t ranks, const json& decoder,
                      const std::string& source) {
  if (!decoder.is_object()) throw_user("{}: field added_tokens_decoder is not an object of token ids", source);
  for (const auto& [key, entry] : decoder.items()) {
    std::int64_t id = -1;
    const auto [stopped, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || stopped != key.data() + key.size())
      throw_user("{}: field added_tokens_decoder: '{}' is not a token id", source, key);
    if (id < ranks || id >= ranks + kControlTokens)
      throw_user(
          "{}: field added_tokens_decoder: id {} is outside {}..{}, the {} ids above the rank file; are the two files "
          "of one model?",
          source, id, ranks, ranks + kControlTokens - 1, kControlTokens);
    if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string() ||
        entry["content"].get_ref<const std::string&>().empty())
      throw_user("{}: field added_tokens_decoder.{}.content is not a token name", source, key);
    names[static_cast<std::size_t>(id - ranks)] = entry["content"].get<std::string>();
  }
}

}  // namespace

std::vector<std::string> control_token_names(std::int64_t ranks, const std::string& config_json,
                                             const std::string& source) {
  std::vector<std::string> names(kControlTokens);
  json config = json::object();
  if (!config_json.empty()) {
    config = json::parse(config_json, nullptr, false);
    if (!config.is_object()) throw_user("{}: is not a JSON object; copy the file again", source);
  }
  if (config.contains("added_tokens_decoder") && !config["added_tokens_decoder"].empty()) {
    name_from_config(names, ranks, config["added_tokens_decoder"], source);
  } else {
    for (const NamedOffset& named : kK3Names) names[static_cast<std::size_t>(named.offset)] = named.name;
  }
  std::set<std::string_view> seen;
  for (int offset = 0; offset < kControlTokens; ++offset) {
    std::string& name = names[static_cast<std::size_t>(offset)];
    if (name.empty()) name = fmt::format("<|reserved_token_{}|>", ranks + offset);
    if (!seen.insert(name).second) throw_user("{}: field added_tokens_decoder names two ids '{}'", source, name);
  }
  return names;
}

}  // namespace k3
