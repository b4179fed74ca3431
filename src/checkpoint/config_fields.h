// One object of a config.json, read key by key: every value is checked for type and range as it is taken, and what
// nobody took is an error at the end unless it is known to be without effect. For the .cpp files of this room.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace k3 {

class ConfigFields {
 public:
  // `path` is the place of the object in the file, "" or "text_config."; `object` must outlive this.
  ConfigFields(const nlohmann::json& object, std::string file, std::string path);

  bool has(const std::string& key) const;  // there and not null; does not take the key
  std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t high);
  std::int64_t integer_or(const std::string& key, std::int64_t absent, std::int64_t low, std::int64_t high);
  double real(const std::string& key, double low, double high);
  double real_or(const std::string& key, double absent, double low, double high);
  bool boolean_or(const std::string& key, bool absent);
  std::string text(const std::string& key);
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t low, std::int64_t high);
  std::vector<std::string> texts(const std::string& key);
  const nlohmann::json* object(const std::string& key);  // null when absent or null

  // Facts on which the implementation rests: the key must hold this value when it is there.
  void must_be(const std::string& key, const nlohmann::json& value);
  void without_effect(const std::set<std::string>& keys);
  void finish() const;  // any key left: UserError

  [[noreturn]] void fail(const std::string& key, const std::string& problem) const;  // "FILE: PATH.KEY PROBLEM"
  std::string place(const std::string& key) const;                                     // "PATH.KEY"
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json* take(const std::string& key);  // null when absent or null
  std::int64_t to_integer(const std::string& key, const nlohmann::json& value, std::int64_t low,
                          std::int64_t high) const;

  const nlohmann::json& object_;
  std::string file_, path_;
  std::set<std::string> taken_;
};

}  // namespace k3
