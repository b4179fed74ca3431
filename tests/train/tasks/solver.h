// Independent reading of generated documents for the tests: numbers of a text, equations that must hold, and what a
// question asks for, found from its words alone.
#pragma once

#include <cctype>
#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "text/chat.h"

namespace k3::test {

inline std::string content_of(const Message& message) {
  std::string text;
  for (const ContentPart& part : message.content) text += part.text;
  return text;
}

inline bool contains(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

inline std::vector<std::int64_t> numbers_of(const std::string& text) {
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    std::size_t used = 0;
    numbers.push_back(std::stoll(text.substr(at), &used));
    at += used;
  }
  return numbers;
}

// The first equation "a + b - 1 = c" (one or two operations of the same line) that does not hold.
inline std::optional<std::string> wrong_equation(const std::string& text) {
  static const std::regex kEquation(R"((-?\d+) ([+x-]) (\d+)(?: ([+-]) (\d+))? = (-?\d+))");
  const auto apply = [](std::int64_t left, char operation, std::int64_t right) {
    return operation == '+' ? left + right : operation == '-' ? left - right : left * right;
  };
  for (std::sregex_iterator match(text.begin(), text.end(), kEquation), end; match != end; ++match) {
    std::int64_t value = apply(std::stoll((*match)[1]), (*match)[2].str()[0], std::stoll((*match)[3]));
    if ((*match)[4].matched) value = apply(value, (*match)[4].str()[0], std::stoll((*match)[5]));
    const std::string before = match->prefix().str();
    if (value != std::stoll((*match)[6]) && !contains(match->str(), ",")) return match->str();
  }
  return std::nullopt;
}

// A sum, difference or product question: the result, from its words.
inline std::int64_t solve_arithmetic(const std::string& question) {
  const std::vector<std::int64_t> n = numbers_of(question);
  if (n.size() != 2) throw std::runtime_error("not two numbers: " + question);
  const auto has = [&](const char* piece) { return contains(question, piece); };
  if (has(" x ") || has("*") || has("times") || has("roduct") || has("ultiply")) return n[0] * n[1];
  if (has("Subtract") || has("subtract") || has("Take ") || has("If you take") || has("less than")) return n[1] - n[0];
  if (has("minus") || has("-") || has("Decrease") || has("Reduce")) return n[0] - n[1];
  return n[0] + n[1];
}

// A word problem of one step, from key phrases; the order of the phrases matters.
inline std::int64_t solve_story(const std::string& question) {
  const std::vector<std::int64_t> n = numbers_of(question);
  if (n.size() != 2) throw std::runtime_error("not two numbers: " + question);
  const auto has = [&](std::initializer_list<const char*> pieces) {
    for (const char* piece : pieces)
      if (contains(question, piece)) return true;
    return false;
  };
  const std::int64_t difference = n[0] > n[1] ? n[0] - n[1] : n[1] - n[0];
  if (has({"in each", "Each bag", "dollars each"})) return n[0] * n[1];
  if (has({"needs", "After buying", "give away?", "How many more", "How many fewer", "fewer", "younger", "the rest",
           "are girls", "fly away", "get off", "left to read", "cuts off", "takes out", "are removed", "and spends",
           "pays with"}))
    return difference;
  if (has({"older", "How old will", "more join", "get on", "girls and", "on Monday", "miles", "on Friday", "together",
           "in total?", "in all", "altogether", "How many dollars does", "puts in", "has saved", "more than", " adds ",
           " more "}) &&
      !has({" left?", "remain?"}))
    return n[0] + n[1];
  static const std::regex kLoss(

      R"(\b(give|gives|gave|lose|loses|lost|sell|sells|sold|use|uses|used|drop|drops|dropped|eat|eats|ate|throw|)"
      R"(throws|threw|share|shares|shared|leave|leaves|left|hand|hands|handed|send|sends|sent|donate|donates|donated|lend|lends|lent)\b)");
  static const std::regex kItem(R"((\d+|many|of|more) leaves)");  // a thing here, not what somebody does
  return std::regex_search(std::regex_replace(question, kItem, "$1 things"), kLoss) ? difference : n[0] + n[1];
}

}  // namespace k3::test
