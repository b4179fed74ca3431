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
inline std::int64_t solve_arithmetic(std::string question) {
  const std::vector<std::int64_t> n = numbers_of(question);
  if (n.size() != 2) throw std::runtime_error("not two numbers: " + question);
  for (char& letter : question) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const auto has = [&](const char* piece) { return contains(question, piece); };
  if (has(" x ") || has("*") || has("times") || has("product") || has("multiply")) return n[0] * n[1];
  if (has("difference") || has("take away") || has("go down") || has("more is") || has("bigger")) return n[0] - n[1];
  if (has("subtraction")) return n[0] - n[1];
  if (has("subtract") || has("take ") || has("less than")) return n[1] - n[0];
  if (has("minus") || has("-") || has("decrease") || has("reduce")) return n[0] - n[1];
  return n[0] + n[1];
}

// Digits in order; where there are fewer than `wanted`, number words from two to twenty too.
inline std::vector<std::int64_t> story_numbers(const std::string& question, std::size_t wanted) {
  const std::vector<std::int64_t> digits = numbers_of(question);
  if (digits.size() >= wanted) return digits;
  static const std::vector<std::string> kWords = {"two",      "three",    "four",     "five",    "six",
                                                  "seven",    "eight",    "nine",     "ten",     "eleven",
                                                  "twelve",   "thirteen", "fourteen", "fifteen", "sixteen",
                                                  "seventeen", "eighteen", "nineteen", "twenty"};
  std::vector<std::int64_t> numbers;
  std::string word;
  for (const char byte : question + " ") {
    if (std::isalnum(static_cast<unsigned char>(byte))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(byte)));
      continue;
    }
    if (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0]))) numbers.push_back(std::stoll(word));
    for (std::size_t at = 0; at < kWords.size(); ++at)
      if (word == kWords[at]) numbers.push_back(static_cast<std::int64_t>(at) + 2);
    word.clear();
  }
  return numbers;
}

// What a story of this kind asks for, from the numbers in the order in which they stand; nothing for other kinds.
inline std::optional<std::int64_t> solve_story(const std::string& kind, const std::string& question,
                                               const std::vector<std::int64_t>& n) {
  const auto one_of = [&](std::initializer_list<const char*> kinds) {
    for (const char* known : kinds)
      if (kind == known) return true;
    return false;
  };
  if (n.size() == 3) {
    if (one_of({"++", "three"})) return n[0] + n[1] + n[2];
    if (one_of({"+-", "in and out"})) return n[0] + n[1] - n[2];
    if (one_of({"-+", "stops"})) return n[0] - n[1] + n[2];
    if (one_of({"--", "pages of two days", "two buys"})) return n[0] - n[1] - n[2];
    if (one_of({"groups-"})) return n[0] * n[1] - n[2];
    if (one_of({"groups+"})) return n[0] * n[1] + n[2];
    if (one_of({"change"})) return n[2] - n[0] - n[1];
    if (one_of({"price change"})) return n[2] - n[0] * n[1];
    if (one_of({"need"})) return n[0] - n[1] - n[2];
    return std::nullopt;
  }
  if (n.size() != 2) return std::nullopt;
  const std::int64_t sum = n[0] + n[1], difference = n[0] > n[1] ? n[0] - n[1] : n[1] - n[0];
  if (one_of({"more together"})) return 2 * n[0] + n[1];
  if (one_of({"fewer together"})) return 2 * n[0] - n[1];
  if (one_of({"groups", "price", "orchard"})) return n[0] * n[1];
  if (one_of({"gain", "together", "days", "colors", "kinds", "places", "class", "distance", "minutes", "points",
              "pages", "cost", "more", "older", "price+", "place+", "bus+", "room+", "animals+", "birds+", "money+",
              "sale+", "age+", "grow", "points+", "degrees+", "hens", "museum", "stairs", "tulips", "harbor", "chess"}))
    return sum;
  if (one_of({"loss", "given", "got", "compare", "cost-", "length-", "age-", "fewer", "younger", "price-", "missing",
              "missing$", "rest", "place-", "bus-", "room-", "animals-", "birds-", "money-", "sale", "ago", "cut",
              "pages-", "way", "homework", "clock-", "points-", "degrees-", "parking", "candles", "match", "theater",
              "tank", "fence", "jigsaw", "thirsty", "library"}))
    return difference;
  if (kind == "before") {  // what went is added again, what came is taken away
    static const std::regex kGone("sold|lost|used|gave away|dropped|donated|handed out|threw away", std::regex::icase);
    return std::regex_search(question, kGone) ? sum : difference;
  }
  return std::nullopt;
}

}  // namespace k3::test
