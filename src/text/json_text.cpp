#include "text/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>

#include "base/error.h"
#include "text/utf8.h"

namespace k3 {
namespace {

constexpr int kDeepest = 200;  // levels of nesting; parsing recurses

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  JsonResult parse() {
    JsonResult result;
    result.ok = value(result.value, 0);
    result.end = at_;
    result.problem = problem_;
    return result;
  }

 private:
  bool fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }
  void skip_blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(char wanted) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  bool value(JsonValue& out, int depth) {
    if (depth > kDeepest) return fail(fmt::format("more than {} levels of nesting", kDeepest));
    skip_blanks();
    if (at_ >= text_.size()) return fail("the text ends where a value should be");
    const std::size_t start = at_;
    bool ok = true;
    switch (text_[at_]) {
      case '{': ok = object(out, depth); break;
      case '[': ok = array(out, depth); break;
      case '"':
        out.kind = JsonValue::Kind::string;
        ok = string(out.text);
        break;
      default:
        if (take_word("null")) out.kind = JsonValue::Kind::null;
        else if (take_word("true") || take_word("false")) out.kind = JsonValue::Kind::boolean;
        else ok = number(out);
    }
    out.literal = text_.substr(start, at_ - start);
    return ok;
  }

  bool object(JsonValue& out, int depth) {
    out.kind = JsonValue::Kind::object;
    ++at_;
    if (take('}')) return true;
    do {
      skip_blanks();
      if (at_ >= text_.size() || text_[at_] != '"') return fail("a key in double quotes should be here");
      auto& [key, member] = out.members.emplace_back();
      if (!string(key)) return false;
      if (!take(':')) return fail("a colon should be here");
      if (!value(member, depth + 1)) return false;
    } while (take(','));
    return take('}') || fail("a comma or } should be here");
  }

  bool array(JsonValue& out, int depth) {
    out.kind = JsonValue::Kind::array;
    ++at_;
    if (take(']')) return true;
    do {
      if (!value(out.items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']') || fail("a comma or ] should be here");
  }

  // Python's reader takes NaN and the infinities too.
  bool number(JsonValue& out) {
    out.kind = JsonValue::Kind::number;
    if (take_word("NaN") || take_word("Infinity") || take_word("-Infinity")) return true;
    const std::size_t start = at_;
    const auto digits = [this] {
      const std::size_t first = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      return at_ - first;
    };
    take_word("-");
    const bool leading_zero = at_ < text_.size() && text_[at_] == '0';
    if (const std::size_t whole = digits(); whole == 0 || (leading_zero && whole > 1)) {
      at_ = start;
      return fail("this is not a JSON value");
    }
    const std::size_t whole_end = at_;
    if (take_word(".") && digits() == 0) at_ = whole_end;
    const std::size_t fraction_end = at_;
    if (take_word("e") || take_word("E")) {
      if (!take_word("+")) take_word("-");
      if (digits() == 0) at_ = fraction_end;
    }
    return true;
  }

  bool hex4(std::uint32_t& out) {
    if (at_ + 4 > text_.size()) return fail("a \\u escape is cut short");
    const auto [stopped, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, out, 16);
    if (error != std::errc() || stopped != text_.data() + at_ + 4) return fail("a \\u escape has no four hex digits");
    at_ += 4;
    return true;
  }

  bool escape(std::string& out) {
    if (at_ >= text_.size()) return fail("the text ends inside a string");
    const char kind = text_[at_++];
    constexpr std::string_view names = "\"\\/bfnrt", bytes = "\"\\/\b\f\n\r\t";
    if (const std::size_t which = names.find(kind); which != std::string_view::npos) {
      out.push_back(bytes[which]);
      return true;
    }
    std::uint32_t point = 0;
    if (kind != 'u') return fail("this escape does not exist in JSON");
    if (!hex4(point)) return false;
    if (point >= 0xD800 && point < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      const std::size_t before = at_;
      std::uint32_t low = 0;
      at_ += 2;
      if (!hex4(low)) return false;
      if (low >= 0xDC00 && low < 0xE000) point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
      else at_ = before;
    }
    append_utf8(out, point >= 0xD800 && point < 0xE000 ? 0xFFFD : point);  // half a surrogate pair is no character
    return true;
  }

  bool string(std::string& out) {
    ++at_;
    while (at_ < text_.size()) {
      const char byte = text_[at_];
      if (static_cast<unsigned char>(byte) < 0x20) return fail("a control character inside a string must be escaped");
      ++at_;
      if (byte == '"') return true;
      if (byte != '\\') out.push_back(byte);
      else if (!escape(out)) return false;
    }
    return fail("the text ends inside a string");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string problem_;
};

// Python's repr(float): shortest digits, fixed for exponents -4..15, at least two digits of exponent.
std::string write_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, result.ptr);
  const std::size_t mark = text.find('e');
  const int exponent = std::stoi(text.substr(mark + 1));
  if (exponent < -4 || exponent > 15) return text;  // to_chars writes e+16, e-05 as Python does
  std::string digits = text.substr(0, mark);
  const std::string sign = digits.front() == '-' ? "-" : "";
  std::erase_if(digits, [](char character) { return character == '.' || character == '-'; });
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string write_number(std::string_view literal) {
  if (literal == "-0") return "0";  // an integer in Python
  if (literal.find_first_of(".eEN") == std::string_view::npos && !literal.ends_with("Infinity"))
    return std::string(literal);
  return write_float(std::strtod(std::string(literal).c_str(), nullptr));
}

void write(std::string& out, const JsonValue& value, const JsonStyle& style) {
  switch (value.kind) {
    case JsonValue::Kind::null:
    case JsonValue::Kind::boolean: out += value.literal; return;
    case JsonValue::Kind::number: out += write_number(value.literal); return;
    case JsonValue::Kind::string: out += write_json_string(value.text); return;
    case JsonValue::Kind::array:
      out += '[';
      for (std::size_t item = 0; item < value.items.size(); ++item) {
        if (item > 0) out += style.comma;
        write(out, value.items[item], style);
      }
      out += ']';
      return;
    case JsonValue::Kind::object: {
      // A Python dict: of equal keys the last value, at the first one's place.
      std::vector<std::pair<std::string_view, const JsonValue*>> members;
      std::map<std::string_view, std::size_t> place;
      for (const auto& [key, member] : value.members) {
        const auto [found, is_new] = place.emplace(key, members.size());
        if (is_new) members.emplace_back(key, &member);
        else members[found->second].second = &member;
      }
      if (style.sorted) std::sort(members.begin(), members.end());  // bytes of UTF-8 sort as code points do
      out += '{';
      for (std::size_t index = 0; index < members.size(); ++index) {
        if (index > 0) out += style.comma;
        out += write_json_string(members[index].first);
        out += style.colon;
        write(out, *members[index].second, style);
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto found =
      std::find_if(members.rbegin(), members.rend(), [key](const JsonMember& member) { return member.key == key; });
  return found == members.rend() ? nullptr : &found->value;
}

JsonResult parse_json_prefix(std::string_view text) { return Parser(text).parse(); }

JsonValue parse_json(std::string_view text, const std::string& source) {
  require_utf8(text, source);
  JsonResult result = parse_json_prefix(text);
  if (result.ok) {
    result.end = std::min(text.find_first_not_of(" \t\r\n", result.end), text.size());
    if (result.end < text.size()) result.ok = false, result.problem = "something follows the JSON value";
  }
  if (!result.ok) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(result.end), '\n');
    throw_user("{}: line {}: {} (byte {}); fix the JSON", source, line, result.problem, result.end);
  }
  return std::move(result.value);
}

std::string write_json(const JsonValue& value, const JsonStyle& style) {
  std::string out;
  write(out, value, style);
  return out;
}

std::string write_json_string(std::string_view text) {
  constexpr std::string_view bytes = "\"\\\b\f\n\r\t", names = "\"\\bfnrt";
  std::string out = "\"";
  for (const char byte : text) {
    if (const std::size_t which = bytes.find(byte); which != std::string_view::npos) out += {'\\', names[which]};
    else if (static_cast<unsigned char>(byte) < 0x20) out += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
    else out += byte;
  }
  return out + '"';
}

const char* json_kind_name(JsonValue::Kind kind) {
  switch (kind) {
    case JsonValue::Kind::null: return "null";
    case JsonValue::Kind::boolean: return "boolean";
    case JsonValue::Kind::number: return "number";
    case JsonValue::Kind::string: return "string";
    case JsonValue::Kind::array: return "array";
    case JsonValue::Kind::object: return "object";
  }
  return "null";
}

}  // namespace k3
