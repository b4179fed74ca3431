#include "train/tasks/arithmetic.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "train/tasks/arithmetic_wordings.h"
#include "train/tasks/problem.h"

namespace k3::train {

namespace {

constexpr std::array<std::string_view, 5> kPlaces = {"ones", "tens", "hundreds", "thousands", "ten thousands"};

std::vector<std::int64_t> digits_from_right(std::int64_t number) {
  std::vector<std::int64_t> digits;
  do digits.push_back(number % 10);
  while ((number /= 10) > 0);
  return digits;
}

std::int64_t digit(const std::vector<std::int64_t>& digits, std::size_t place) {
  return place < digits.size() ? digits[place] : 0;
}

constexpr std::array kReplies = {"{a} {o} {b} = {r}", "{a} {o} {b} = {r}.", "{r}", "The answer is {r}.",
                                 "{a} {o} {b} is {r}."};

bool belongs(char operation, std::int64_t left, std::int64_t right, Split split) {
  return split == Split::train ? for_training(operation, left, right)
                               : split_of_calculation(operation, left, right) == split;
}

Problem make_problem(Random& random, char operation, std::int64_t left, std::int64_t right) {
  Problem problem;
  const std::int64_t result = operation == '+' ? left + right : operation == '-' ? left - right : left * right;
  const std::string a = fmt::to_string(left), b = fmt::to_string(right), r = fmt::to_string(result);
  std::string_view pattern;
  if (operation == '+')
    pattern = random.pick(kSumQuestions);
  else if (operation == '*')
    pattern = random.pick(kProductQuestions);
  else if (left >= right && random.chance(0.08))
    pattern = random.pick(kOrderedDifferenceQuestions);
  else
    pattern = random.pick(kDifferenceQuestions);
  const std::string operation_text = operation == '*' ? "x" : std::string(1, operation);
  const bool in_words = random.chance(0.04);
  problem.question = in_words ? fill(pattern, {{"a", number_in_words(left)}, {"b", number_in_words(right)}})
                              : fill(pattern, {{"a", a}, {"b", b}});
  problem.question = typed(random, std::move(problem.question));
  const std::string lead =
      in_words ? fmt::format("{} is {} and {} is {}. ", number_in_words(left), a, number_in_words(right), b) : "";
  const std::string steps = operation == '+'   ? sum_steps(left, right)
                            : operation == '-' ? difference_steps(left, right)
                                               : product_steps(left, right);
  problem.steps = fmt::format("{}{} So {} {} {} = {}.", lead, steps, a, operation_text, b, r);
  if (operation == '+') problem.check = fmt::format("Check: {} - {} = {}.", r, b, a);
  if (operation == '-') problem.check = fmt::format("Check: {} + {} = {}.", r, b, a);
  if (operation == '*') problem.check = fmt::format("Check: {} x {} = {}.", b, a, r);
  if (in_words) problem.brief = fmt::format("{} {} {}", a, operation_text, b);
  problem.reply = fill(random.pick(kReplies), {{"a", a}, {"b", b}, {"r", r}, {"o", operation_text}});
  problem.answer = r;
  problem.kind = operation == '+' ? "sum" : operation == '-' ? "difference" : "product";
  return problem;
}

std::int64_t number_of_digits(Random& random, std::int64_t digits) {
  if (digits == 1) return random.between(0, 9);
  return digits == 2 ? random.between(10, 99) : random.between(100, 999);
}

}  // namespace

Split split_of_calculation(char operation, std::int64_t left, std::int64_t right) {
  if (operation != '-' && left > right) std::swap(left, right);
  return split_of(fmt::format("{}{}{}", left, operation, right));
}

bool for_training(char operation, std::int64_t left, std::int64_t right) {
  const auto held_out = [](char sign, std::int64_t a, std::int64_t b) {
    return split_of_calculation(sign, a, b) == Split::heldout;
  };
  if (held_out(operation, left, right)) return false;
  if (operation == '+') return !held_out('-', left + right, right);
  if (operation == '-') return !held_out('+', left - right, right) && (left >= right || !held_out('-', right, left));
  return left >= 10 || right < 10 || !held_out('+', left * (right / 10 * 10), left * (right % 10));
}

std::string sum_steps(std::int64_t left, std::int64_t right) {
  if (left < 10 && right < 10) return fmt::format("{} + {} = {}.", left, right, left + right);
  const auto a = digits_from_right(left), b = digits_from_right(right);
  std::string out = fmt::format("{} + {}: ", left, right);
  std::int64_t carry = 0;
  const std::size_t places = std::max(a.size(), b.size());
  for (std::size_t place = 0; place < places; ++place) {
    const std::int64_t sum = digit(a, place) + digit(b, place) + carry;
    out += fmt::format("{}{} {} + {}{} = {}", place == 0 ? "" : "; ", kPlaces[place], digit(a, place), digit(b, place),
                       carry ? " + 1" : "", sum);
    carry = sum / 10;
    if (carry) out += fmt::format(", write {}, carry 1", sum % 10);
  }
  if (carry) out += fmt::format("; {} 1", kPlaces[places]);
  return out + ".";
}

std::string difference_steps(std::int64_t left, std::int64_t right) {
  if (left < right)
    return fmt::format("{} is less than {}, so the result is negative. {} {} - {} = {}.", left, right,
                       difference_steps(right, left), right, left, right - left);
  if (left < 10) return fmt::format("{} - {} = {}.", left, right, left - right);
  const auto a = digits_from_right(left), b = digits_from_right(right);
  std::string out = fmt::format("{} - {}: ", left, right);
  std::int64_t borrowed = 0;
  for (std::size_t place = 0; place < a.size(); ++place) {
    const std::string rest = fmt::format("{}{}", digit(b, place), borrowed ? " - 1" : "");
    const std::int64_t difference = a[place] - digit(b, place) - borrowed;
    out += fmt::format("{}{} {} - {}", place == 0 ? "" : "; ", kPlaces[place], a[place], rest);
    if (difference < 0) out += fmt::format(", borrow, {} - {}", a[place] + 10, rest);
    borrowed = difference < 0 ? 1 : 0;
    out += fmt::format(" = {}", difference + 10 * borrowed);
  }
  return out + ".";
}

std::string product_steps(std::int64_t left, std::int64_t right) {
  if (right < 10 || left >= 10) return fmt::format("{} x {} = {}.", left, right, left * right);
  const std::int64_t tens = right / 10 * 10, ones = right % 10;
  if (ones == 0)
    return fmt::format("{} x {} = {}, then a zero: {}.", left, right / 10, left * (right / 10), left * right);
  return fmt::format("{0} x {1} = {2}; {0} x {3} = {4}; {2} + {4} = {5}.", left, tens, left * tens, ones, left * ones,
                     left * right);
}

std::string number_in_words(std::int64_t number) {
  constexpr std::array<std::string_view, 20> kSmall = {
      "zero", "one",    "two",    "three",    "four",     "five",    "six",     "seven",     "eight",    "nine",
      "ten",  "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  constexpr std::array<std::string_view, 10> kTens = {"",      "",      "twenty",  "thirty", "forty",
                                                      "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (number < 20) return std::string(kSmall[static_cast<std::size_t>(number)]);
  if (number < 100) {
    std::string words(kTens[static_cast<std::size_t>(number / 10)]);
    if (number % 10 != 0) words += fmt::format("-{}", kSmall[static_cast<std::size_t>(number % 10)]);
    return words;
  }
  std::string words = fmt::format("{} hundred", kSmall[static_cast<std::size_t>(number / 100)]);
  if (number % 100 != 0) words += " and " + number_in_words(number % 100);
  return words;
}

Problem two_digit_problem(Random& random, Split split) {
  for (;;) {
    const char operation = random.chance(0.5) ? '+' : '-';
    std::int64_t left = random.between(10, 99), right = random.between(10, 99);
    if (operation == '-' && left < right && random.chance(0.7)) std::swap(left, right);
    if (belongs(operation, left, right, split)) return make_problem(random, operation, left, right);
  }
}

Problem arithmetic_problem(Random& random, Split split) {
  if (random.chance(0.55)) return two_digit_problem(random, split);
  for (;;) {
    const char operation = random.chance(0.45) ? '+' : random.chance(0.75) ? '-' : '*';
    std::int64_t left = 0, right = 0;
    if (operation == '*') {
      left = random.between(0, 12);
      right = left >= 10 ? random.between(0, 12) : random.between(0, 99);
    } else {
      left = number_of_digits(random, random.between(1, 3));
      right = number_of_digits(random, random.between(1, 3));
      if (operation == '-' && left < right && random.chance(0.7)) std::swap(left, right);
    }
    if (belongs(operation, left, right, split)) return make_problem(random, operation, left, right);
  }
}

}  // namespace k3::train
