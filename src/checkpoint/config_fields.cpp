#include "checkpoint/config_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace k3 {

using Json = nlohmann::json;

namespace {

std::string shortened(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Keys come from the file and end up in one-line messages.
std::string printable(const std::string& key) {
  const std::string quoted = shortened(Json(key));
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

ConfigFields::ConfigFields(const Json& object, std::string file, std::string path)
    : object_(object), file_(std::move(file)), path_(std::move(path)) {
  if (!object_.is_object())
    throw_user("{}: {} must be a JSON object, is {}", file_,
               path_.empty() ? "the whole file" : path_.substr(0, path_.size() - 1), shortened(object_));
}

std::string ConfigFields::place(const std::string& key) const { return path_ + printable(key); }

void ConfigFields::fail(const std::string& key, const std::string& problem) const {
  throw_user("{}: {} {}", file_, place(key), problem);
}

bool ConfigFields::has(const std::string& key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

const Json* ConfigFields::take(const std::string& key) {
  taken_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::int64_t ConfigFields::to_integer(const std::string& key, const Json& value, std::int64_t low,
                                      std::int64_t high) const {
  if (!value.is_number_integer()) fail(key, fmt::format("is {}; must be a whole number", shortened(value)));
  const bool too_large =
      value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const std::int64_t number = too_large ? INT64_MAX : value.get<std::int64_t>();
  if (number < low || number > high)
    fail(key, fmt::format("is {}; must be from {} to {}", shortened(value), low, high));
  return number;
}

std::int64_t ConfigFields::integer(const std::string& key, std::int64_t low, std::int64_t high) {
  const Json* value = take(key);
  if (value == nullptr) fail(key, "is missing; the architecture is not complete without it");
  return to_integer(key, *value, low, high);
}

std::int64_t ConfigFields::integer_or(const std::string& key, std::int64_t absent, std::int64_t low,
                                      std::int64_t high) {
  const Json* value = take(key);
  return value == nullptr ? absent : to_integer(key, *value, low, high);
}

double ConfigFields::real(const std::string& key, double low, double high) {
  if (!has(key)) fail(key, "is missing; the architecture is not complete without it");
  return real_or(key, 0.0, low, high);
}

double ConfigFields::real_or(const std::string& key, double absent, double low, double high) {
  const Json* value = take(key);
  if (value == nullptr) return absent;
  if (!value->is_number()) fail(key, fmt::format("is {}; must be a number", shortened(*value)));
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < low || number > high)
    fail(key, fmt::format("is {}; must be from {} to {}", shortened(*value), low, high));
  return number;
}

bool ConfigFields::boolean_or(const std::string& key, bool absent) {
  const Json* value = take(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) fail(key, fmt::format("is {}; must be true or false", shortened(*value)));
  return value->get<bool>();
}

std::string ConfigFields::text(const std::string& key) {
  const Json* value = take(key);
  if (value == nullptr) fail(key, "is missing");
  if (!value->is_string()) fail(key, fmt::format("is {}; must be text", shortened(*value)));
  return value->get<std::string>();
}

std::vector<std::int64_t> ConfigFields::integers(const std::string& key, std::int64_t low, std::int64_t high) {
  const Json* value = take(key);
  if (value == nullptr) fail(key, "is missing");
  if (!value->is_array()) fail(key, fmt::format("is {}; must be a list of whole numbers", shortened(*value)));
  std::vector<std::int64_t> numbers;
  for (const Json& entry : *value) numbers.push_back(to_integer(key, entry, low, high));
  return numbers;
}

std::vector<std::string> ConfigFields::texts(const std::string& key) {
  const Json* value = take(key);
  if (value == nullptr) fail(key, "is missing");
  if (!value->is_array()) fail(key, fmt::format("is {}; must be a list of words", shortened(*value)));
  std::vector<std::string> words;
  for (const Json& entry : *value) {
    if (!entry.is_string()) fail(key, fmt::format("holds {}; must be a list of words", shortened(entry)));
    words.push_back(entry.get<std::string>());
  }
  return words;
}

const Json* ConfigFields::object(const std::string& key) {
  const Json* value = take(key);
  if (value != nullptr && !value->is_object()) fail(key, fmt::format("is {}; must be an object", shortened(*value)));
  return value;
}

void ConfigFields::must_be(const std::string& key, const Json& wanted) {
  const Json* value = take(key);
  if (value != nullptr && *value != wanted)
    fail(key, fmt::format("is {}; only {} is supported", shortened(*value), wanted.dump()));
}

void ConfigFields::without_effect(const std::set<std::string>& keys) { taken_.insert(keys.begin(), keys.end()); }

void ConfigFields::finish() const {
  std::string unknown;
  for (const auto& [key, value] : object_.items())
    if (!taken_.contains(key)) unknown += (unknown.empty() ? "" : ", ") + place(key);
  if (!unknown.empty())
    throw_user(
        "{}: unknown key {}; it could change what the model computes, so remove it or use a version that knows it",
        file_, unknown);
}

}  // namespace k3
