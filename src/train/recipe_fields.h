// The keys of a recipe file as a flat list "table.name.key" -> values, with typed access that remembers what was asked
// for, so that unknown keys can be refused by name. TOML is read by CLI11's configuration parser.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace k3::train {

class RecipeFields {
 public:
  RecipeFields(const std::filesystem::path& path, const std::vector<std::pair<std::string, std::string>>& settings);

  // With a fallback the key may be absent; without one its absence is a UserError.
  std::string text(const std::string& key, std::optional<std::string> fallback = std::nullopt);
  std::int64_t integer(const std::string& key, std::int64_t minimum,
                       std::optional<std::int64_t> fallback = std::nullopt);
  double number(const std::string& key, double minimum, double maximum, std::optional<double> fallback = std::nullopt);
  bool boolean(const std::string& key, bool fallback);
  std::vector<std::string> list(const std::string& key);

  std::vector<std::string> tables(const std::string& parent) const;  // names N of tables "parent.N", in file order
  std::vector<std::string> keys_in(
      const std::string& table) const;  // names K of keys "table.K", K without further dots
  bool has(const std::string& key) const;
  void refuse_unused() const;
  const std::vector<std::pair<std::string, std::vector<std::string>>>& all() const { return fields_; }
  std::string where(const std::string& key) const;  // "FILE: key KEY", for messages

 private:
  const std::vector<std::string>* find(const std::string& key);
  const std::string* single(const std::string& key);

  std::filesystem::path path_;
  std::vector<std::pair<std::string, std::vector<std::string>>> fields_;
  std::vector<std::string> used_;
};

}  // namespace k3::train
