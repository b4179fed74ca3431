// JSON as the chat format needs it: key order, duplicate keys and the literal bytes of every value are kept, and
// values are written the way Python's json.dumps(ensure_ascii=False) writes them, because the rendered prompt must
// be the reference's byte for byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace k3 {

struct JsonMember;

struct JsonValue {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  std::string_view literal;         // its bytes in the parsed text, which must outlive the value
  std::string text;                 // string: unescaped
  std::vector<JsonValue> items;     // array
  std::vector<JsonMember> members;  // object, in the text's order

  bool is(Kind wanted) const { return kind == wanted; }
  const JsonValue* find(std::string_view key) const;  // the last member of that name, or nullptr
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

struct JsonResult {
  bool ok = false;
  JsonValue value;
  std::size_t end = 0;  // just past the value; where parsing stopped when not ok
  std::string problem;  // when not ok
};
JsonResult parse_json_prefix(std::string_view text);  // what follows the value is not looked at

// The whole text as one value; a UserError names `source` and the byte.
JsonValue parse_json(std::string_view text, const std::string& source);

struct JsonStyle {
  std::string_view comma, colon;
  bool sorted;  // keys by code point
};
inline constexpr JsonStyle kSortedCompact{",", ":", true};  // declarations and schemas
inline constexpr JsonStyle kSpaced{", ", ": ", false};      // values of arguments that came as an object
std::string write_json(const JsonValue& value, const JsonStyle& style);
std::string write_json_string(std::string_view text);  // with its quotes

const char* json_kind_name(
    JsonValue::Kind kind);  // as in XTML's type attribute: string, number, boolean, null, object, array

}  // namespace k3
