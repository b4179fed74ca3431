#include "train/tasks/answers.h"

#include <nlohmann/json.hpp>

#include "text/xtml_parser.h"

namespace k3::train {

namespace {

using Json = nlohmann::json;

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_word(char byte) { return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }

// Whole numbers of a text in order.
std::vector<std::string> numbers_in(std::string_view text) {
  std::vector<std::string> numbers;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_digit(text[at])) {
      ++at;
      continue;
    }
    std::string digits;
    const std::size_t begin = at;
    bool fraction = begin >= 2 && text[begin - 1] == '.' && is_digit(text[begin - 2]);
    while (at < text.size()) {
      if (is_digit(text[at]))
        digits += text[at++];
      else if (text[at] == ',' && at + 3 < text.size() && is_digit(text[at + 1]) && is_digit(text[at + 2]) &&
               is_digit(text[at + 3]) && (at + 4 >= text.size() || !is_digit(text[at + 4])) && at - begin <= 3)
        ++at;
      else
        break;
    }
    if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) fraction = true;
    std::size_t before = begin;
    if (before > 0 && text[before - 1] == '-') {
      std::size_t left = before - 1;
      while (left > 0 && text[left - 1] == ' ') --left;
      const bool touches = left == before - 1;
      const bool operand = left > 0 && (is_digit(text[left - 1]) || (touches && is_word(text[left - 1])));
      if (!operand) digits.insert(digits.begin(), '-');
    }
    if (!fraction) numbers.push_back(digits);
  }
  return numbers;
}

// An argument as JSON; a value that is not of its declared type becomes an object that equals nothing wanted.
Json argument_value(const std::string& type, const std::string& text) {
  if (type == "string") return text;
  Json value = Json::parse(text, nullptr, false);
  const bool typed = (type == "number" && value.is_number()) || (type == "boolean" && value.is_boolean()) ||
                     (type == "null" && value.is_null()) || (type == "object" && value.is_object()) ||
                     (type == "array" && value.is_array());
  if (!typed) value = {{"declared", type}, {"written", text}};
  return value;
}

}  // namespace

Reply parse_reply(std::span<const std::int64_t> ids, const Tokenizer& tokenizer, bool thinking) {
  Reply reply;
  XtmlReader reader(tokenizer, thinking ? XtmlParser::Start::think : XtmlParser::Start::response);
  Json arguments = Json::object();
  std::string value;
  const auto take = [&](const std::vector<XtmlEvent>& events) {
    using Kind = XtmlEvent::Kind;
    for (const XtmlEvent& event : events) {
      if (event.kind == Kind::reasoning) reply.reasoning += event.text;
      if (event.kind == Kind::content) reply.content += event.text;
      if (event.kind == Kind::reasoning_is_content) reply.content = std::move(reply.reasoning), reply.reasoning.clear();
      if (event.kind == Kind::call_begin)
        reply.calls.push_back({"", event.text, "{}", false}), arguments = Json::object();
      if (event.kind == Kind::argument_begin) value.clear();
      if (event.kind == Kind::argument) value += event.text;
      if (event.kind == Kind::argument_end) {
        arguments[event.key] = argument_value(event.type, value);
        reply.calls.back().arguments = arguments.dump();
      }
    }
  };
  const TokenId end = tokenizer.control("<|end_of_msg|>");
  for (const std::int64_t id : ids) {
    take(reader.push(static_cast<TokenId>(id)));
    reply.complete = id == end;
    if (reply.complete) break;
  }
  take(reader.finish());
  return reply;
}

std::optional<std::string> last_number(std::string_view text) {
  const auto numbers = numbers_in(text);
  if (numbers.empty()) return std::nullopt;
  return numbers.back();
}

bool right_number(const Reply& reply, const std::string& wanted) {
  return reply.complete && last_number(reply.content) == wanted;
}

bool right_key(const Reply& reply, const std::string& wanted) {
  if (!reply.complete) return false;
  bool found = false;
  for (const std::string& number : numbers_in(reply.content)) {
    if (number == wanted)
      found = true;
    else if (number.size() == wanted.size())
      return false;
  }
  return found;
}

bool right_call(const Reply& reply, const ToolCall& wanted) {
  if (!reply.complete || reply.calls.size() != 1 || reply.calls[0].name != wanted.name) return false;
  return Json::parse(reply.calls[0].arguments) == Json::parse(wanted.arguments);
}

}  // namespace k3::train
