#include "checkpoint/json_text.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"

namespace k3 {

using Json = nlohmann::json;

namespace {

constexpr std::size_t kMaxDepth = 64;  // configs nest 5 deep; a file of a million brackets is an attack on the reader

std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return line;
}

// Counts brackets outside of strings before the parser builds anything.
void check_depth(std::string_view text, const std::string& name) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth)
        throw_user("{}: JSON nested deeper than {} levels; this is not a file of this kind", name, kMaxDepth);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
}

}  // namespace

Json parse_json_tree(std::string_view text, const std::string& name) {
  check_depth(text, name);
  std::vector<std::set<std::string>> open_objects;  // keys seen, innermost object last
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key && !open_objects.back().insert(value.get<std::string>()).second)
      throw_user("{}: key {} appears twice; keep one of them", name, one_line(value.get<std::string>()));
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    std::string reason = error.what();
    const auto colon = reason.find("parse error");
    throw_user("{}: is not valid JSON: {}", name, one_line(colon == std::string::npos ? reason : reason.substr(colon)));
  } catch (const Json::exception& error) {  // numbers that do not fit
    throw_user("{}: is not valid JSON: {}", name, one_line(error.what()));
  }
}

}  // namespace k3
