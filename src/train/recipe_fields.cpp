#include "train/recipe_fields.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/files.h"

namespace k3::train {
namespace {

std::string without_underscores(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  return text;
}

// CLI11 reads plain lines only: comments go, arrays over several lines become one, and what is neither a table nor key
// = value is refused.
std::string plain_lines(const std::string& text, const std::filesystem::path& path) {
  std::istringstream input(text);
  std::string line, plain, open_array;
  for (int number = 1; std::getline(input, line); ++number) {
    char quote = 0;
    for (std::size_t at = 0; at < line.size(); ++at) {
      if (quote != 0 && line[at] == '#')
        throw_user("{} line {}: a # may not stand inside a string; rename the file or folder", path.string(), number);
      if (line[at] == '#') line.resize(at);
      else if (line[at] == quote) quote = 0;
      else if (quote == 0 && (line[at] == '"' || line[at] == '\'')) quote = line[at];
    }
    if (quote != 0) throw_user("{} line {}: the quotes do not close", path.string(), number);
    line = open_array + CLI::detail::trim_copy(line);
    open_array.clear();
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    const bool table = line.front() == '[' && line.back() == ']';
    if (!table && equals == std::string::npos)
      throw_user("{} line {}: is neither [table] nor key = value: {}", path.string(), number, line);
    const std::size_t value = table ? std::string::npos : line.find_first_not_of(" \t", equals + 1);
    if (value != std::string::npos && line[value] == '[' && line.back() != ']') {
      open_array = line + " ";
      continue;
    }
    plain += line + "\n";
  }
  if (!open_array.empty()) throw_user("{}: an array is not closed: {}", path.string(), open_array);
  return plain;
}

template <class Number>
bool parse_whole(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

RecipeFields::RecipeFields(const std::filesystem::path& path,
                           const std::vector<std::pair<std::string, std::string>>& settings)
    : path_(path) {
  std::istringstream input(plain_lines(read_file(path), path));
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(input);
  } catch (const CLI::Error& error) {
    throw_user("{}: is not a recipe: {}", path.string(), error.what());
  }
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // begin and end of a table
    const std::string key = item.fullname();
    if (has(key)) throw_user("{}: key {} is set twice; keep one", path.string(), key);
    fields_.emplace_back(key, item.inputs);
  }
  for (const auto& [key, value] : settings) {
    const auto old = std::find_if(fields_.begin(), fields_.end(),
                                  [&, &name = key](const auto& field) { return field.first == name; });
    if (old != fields_.end()) {
      old->second = {value};
    } else {
      fields_.emplace_back(key, std::vector<std::string>{value});
    }
  }
}

std::string RecipeFields::where(const std::string& key) const { return fmt::format("{}: key {}", path_.string(), key); }

bool RecipeFields::has(const std::string& key) const {
  return std::any_of(fields_.begin(), fields_.end(), [&](const auto& field) { return field.first == key; });
}

const std::vector<std::string>* RecipeFields::find(const std::string& key) {
  for (const auto& [name, values] : fields_) {
    if (name != key) continue;
    used_.push_back(key);
    return &values;
  }
  return nullptr;
}

const std::string* RecipeFields::single(const std::string& key) {
  const std::vector<std::string>* values = find(key);
  if (values == nullptr) return nullptr;
  if (values->size() != 1) throw_user("{} takes one value, got {}", where(key), values->size());
  return &values->front();
}

std::string RecipeFields::text(const std::string& key, std::optional<std::string> fallback) {
  if (const std::string* value = single(key)) return *value;
  if (!fallback) throw_user("{} is missing; add it", where(key));
  return *fallback;
}

std::int64_t RecipeFields::integer(const std::string& key, std::int64_t minimum, std::optional<std::int64_t> fallback) {
  const std::string* value = single(key);
  if (value == nullptr) {
    if (!fallback) throw_user("{} is missing; add it", where(key));
    return *fallback;
  }
  std::int64_t result = 0;
  const std::string digits = without_underscores(*value);
  double real = 0;
  if (!parse_whole(digits, result)) {  // 1e9 is a whole number too
    if (!parse_whole(digits, real) || real != static_cast<double>(static_cast<std::int64_t>(real)) || real > 9e15)
      throw_user("{} must be a whole number, got {}", where(key), *value);
    result = static_cast<std::int64_t>(real);
  }
  if (result < minimum) throw_user("{} must be at least {}, got {}", where(key), minimum, *value);
  return result;
}

double RecipeFields::number(const std::string& key, double minimum, double maximum, std::optional<double> fallback) {
  const std::string* value = single(key);
  if (value == nullptr) {
    if (!fallback) throw_user("{} is missing; add it", where(key));
    return *fallback;
  }
  double result = 0;
  if (!parse_whole(without_underscores(*value), result)) throw_user("{} must be a number, got {}", where(key), *value);
  if (!(result >= minimum && result <= maximum))
    throw_user("{} must lie between {} and {}, got {}", where(key), minimum, maximum, *value);
  return result;
}

bool RecipeFields::boolean(const std::string& key, bool fallback) {
  const std::string* value = single(key);
  if (value == nullptr) return fallback;
  if (*value != "true" && *value != "false") throw_user("{} must be true or false, got {}", where(key), *value);
  return *value == "true";
}

std::vector<std::string> RecipeFields::list(const std::string& key) {
  const std::vector<std::string>* values = find(key);
  if (values == nullptr || values->empty()) throw_user("{} is missing; add it", where(key));
  return *values;
}

std::vector<std::string> RecipeFields::tables(const std::string& parent) const {
  std::vector<std::string> names;
  for (const auto& [key, values] : fields_) {
    if (key.rfind(parent + ".", 0) != 0) continue;
    const std::string rest = key.substr(parent.size() + 1);
    const std::size_t dot = rest.find('.');
    if (dot == std::string::npos) continue;
    const std::string name = rest.substr(0, dot);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::vector<std::string> RecipeFields::keys_in(const std::string& table) const {
  std::vector<std::string> names;
  for (const auto& [key, values] : fields_) {
    if (key.rfind(table + ".", 0) != 0) continue;
    const std::string rest = key.substr(table.size() + 1);
    if (rest.find('.') == std::string::npos) names.push_back(rest);
  }
  return names;
}

void RecipeFields::refuse_unused() const {
  for (const auto& [key, values] : fields_)
    if (std::find(used_.begin(), used_.end(), key) == used_.end())
      throw_user("{}: key {} is not known; see docs/training.md for the keys of a recipe", path_.string(), key);
}

}  // namespace k3::train
