// Lists: counting, sorting, smallest and largest, picking an item by position, reversing, copying word for word.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "train/tasks/arithmetic.h"
#include "train/tasks/problem.h"
#include "train/tasks/words.h"

namespace k3::train {

namespace {

constexpr std::array<std::string_view, 8> kOrdinals = {"first", "second", "third",   "fourth",
                                                       "fifth", "sixth",  "seventh", "eighth"};

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (const std::string& item : items) out += fmt::format("{}{}", out.empty() ? "" : separator, item);
  return out;
}

std::vector<std::string> random_words(Random& random, std::int64_t count, bool distinct) {
  std::vector<std::string> words;
  while (static_cast<std::int64_t>(words.size()) < count) {
    std::string word(random.pick(kWords));
    if (!distinct || std::find(words.begin(), words.end(), word) == words.end()) words.push_back(std::move(word));
  }
  return words;
}

std::vector<std::int64_t> random_numbers(Random& random, std::int64_t count, std::int64_t largest) {
  std::vector<std::int64_t> numbers;
  while (static_cast<std::int64_t>(numbers.size()) < count) {
    const std::int64_t number = random.between(0, largest);
    if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::string> as_text(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> out;
  for (const std::int64_t number : numbers) out.push_back(fmt::to_string(number));
  return out;
}

Problem count_items(Random& random) {
  constexpr std::array<std::string_view, 6> kAsk = {
      "How many words are in this list: {l}?", "Count the words: {l}",
      "How many items are there: {l}?",        "How many words do you see here? {l}",
      "Count the items in the list {l}.",      "What is the number of words in: {l}"};
  const auto words = random_words(random, random.between(1, 12), false);
  Problem problem;
  problem.question = fill(random.pick(kAsk), {{"l", joined(words, ", ")}});
  for (std::size_t at = 0; at < words.size(); ++at)
    problem.steps += fmt::format("{}{} {}", at ? ", " : "", at + 1, words[at]);
  problem.steps += '.';
  problem.brief = fmt::to_string(words.size());
  problem.answer = fmt::to_string(words.size());
  problem.reply = words.size() == 1 ? "There is 1 word." : fmt::format("There are {} words.", words.size());
  if (problem.question.find("item") != std::string::npos)
    problem.reply = words.size() == 1 ? "There is 1 item." : fmt::format("There are {} items.", words.size());
  return problem;
}

Problem count_one_word(Random& random) {
  constexpr std::array<std::string_view, 4> kAsk = {
      "How many times does the word {w} appear: {l}?", "How often is {w} in this list: {l}?",
      "Count how many times {w} occurs in: {l}", "How many {w} are in this list: {l}"};
  const auto choices = random_words(random, 3, true);
  std::vector<std::string> words;
  const std::int64_t count = random.between(3, 12);
  for (std::int64_t at = 0; at < count; ++at) words.push_back(random.pick(choices));
  Problem problem;
  problem.question = fill(random.pick(kAsk), {{"w", choices[0]}, {"l", joined(words, ", ")}});
  std::int64_t found = 0;
  for (const std::string& word : words) {
    if (word == choices[0]) ++found;
    problem.steps += fmt::format("{}{} {}", problem.steps.empty() ? "" : ", ", word, found);
  }
  problem.steps += '.';
  problem.answer = fmt::to_string(found);
  problem.brief = problem.answer;
  problem.reply = fmt::format("{} appears {} time{}.", choices[0], found, found == 1 ? "" : "s");
  return problem;
}

Problem count_up(Random& random) {
  const std::int64_t from = random.between(0, 80), to = from + random.between(2, 12);
  const bool down = random.chance(0.35);
  constexpr std::array<std::string_view, 4> kAsk = {"Count from {a} to {b}.", "Please count from {a} to {b}.",
                                                    "List the numbers from {a} to {b}.",
                                                    "Can you count from {a} to {b}?"};
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = from; number <= to; ++number) numbers.push_back(number);
  if (down) std::reverse(numbers.begin(), numbers.end());
  Problem problem;
  problem.question =
      fill(random.pick(kAsk), {{"a", fmt::to_string(numbers.front())}, {"b", fmt::to_string(numbers.back())}});
  problem.answer = joined(as_text(numbers), ", ");
  problem.reply = problem.answer;
  problem.steps =
      fmt::format("Start at {}, go {} by one, stop at {}.", numbers.front(), down ? "down" : "up", numbers.back());
  return problem;
}

Problem sort_numbers(Random& random) {
  constexpr std::array<std::string_view, 6> kAsk = {
      "Sort these numbers: {l}",         "Sort {l} from smallest to largest.", "Put these numbers in order: {l}",
      "Arrange in ascending order: {l}", "Please sort the list {l}.",          "Order these from small to large: {l}"};
  constexpr std::array<std::string_view, 3> kAskDown = {"Sort {l} from largest to smallest.",
                                                        "Arrange in descending order: {l}",
                                                        "Sort these numbers in descending order: {l}"};
  const std::int64_t count = random.between(2, 8);
  auto numbers = random_numbers(random, count, random.chance(0.6) ? 99 : random.chance(0.5) ? 9 : 999);
  const bool down = random.chance(0.25);
  Problem problem;
  problem.question = fill(down ? random.pick(kAskDown) : random.pick(kAsk), {{"l", joined(as_text(numbers), ", ")}});
  auto left = numbers;
  while (!left.empty()) {
    const auto best = down ? std::max_element(left.begin(), left.end()) : std::min_element(left.begin(), left.end());
    const std::int64_t chosen = *best;
    left.erase(best);
    problem.steps += fmt::format("{}{} {}", problem.steps.empty() ? "" : "; ",
                                 problem.steps.empty() ? (down ? "largest" : "smallest") : "next", chosen);
    if (!left.empty()) problem.steps += fmt::format(", left {}", joined(as_text(left), " "));
  }
  problem.steps += '.';
  if (down)
    std::sort(numbers.rbegin(), numbers.rend());
  else
    std::sort(numbers.begin(), numbers.end());
  problem.answer = joined(as_text(numbers), ", ");
  problem.reply = problem.answer;
  problem.check = fmt::format("That is {} number{}.", numbers.size(), numbers.size() == 1 ? "" : "s");
  return problem;
}

Problem sort_words(Random& random) {
  constexpr std::array<std::string_view, 4> kAsk = {"Sort these words alphabetically: {l}",
                                                    "Put these words in alphabetical order: {l}",
                                                    "Sort the words {l} from a to z.", "Arrange alphabetically: {l}"};
  auto words = random_words(random, random.between(2, 6), true);
  Problem problem;
  problem.question = fill(random.pick(kAsk), {{"l", joined(words, ", ")}});
  for (const std::string& word : words)
    problem.steps += fmt::format("{}{} starts with {}", problem.steps.empty() ? "" : ", ", word, word.substr(0, 1));
  problem.steps += '.';
  std::sort(words.begin(), words.end());
  problem.answer = joined(words, ", ");
  problem.reply = problem.answer;
  return problem;
}

Problem extreme(Random& random) {
  const bool largest = random.chance(0.5);
  constexpr std::array<std::string_view, 4> kLargest = {"Which number is the largest: {l}?",
                                                        "What is the biggest of {l}?", "Find the maximum: {l}",
                                                        "Which is larger, {l}?"};
  constexpr std::array<std::string_view, 4> kSmallest = {"Which number is the smallest: {l}?",
                                                         "What is the smallest of {l}?", "Find the minimum: {l}",
                                                         "Which is smaller, {l}?"};
  const std::int64_t count = random.between(2, 7);
  const auto numbers = random_numbers(random, count, random.chance(0.7) ? 99 : 999);
  Problem problem;
  problem.question =
      fill(largest ? random.pick(kLargest) : random.pick(kSmallest), {{"l", joined(as_text(numbers), ", ")}});
  std::int64_t best = numbers[0];
  problem.steps = fmt::format("Start with {}", best);
  for (std::size_t at = 1; at < numbers.size(); ++at) {
    const bool better = largest ? numbers[at] > best : numbers[at] < best;
    if (better) best = numbers[at];
    problem.steps += fmt::format("; {}, {} {}", numbers[at], better ? "now" : "stay", best);
  }
  problem.steps += '.';
  problem.answer = fmt::to_string(best);
  problem.reply = fmt::format("The {} number is {}.", largest ? "largest" : "smallest", best);
  return problem;
}

Problem pick_item(Random& random) {
  constexpr std::array<std::string_view, 4> kAsk = {"What is the {o} word in this list: {l}?",
                                                    "Which word is {o}: {l}?", "Give me the {o} item of: {l}",
                                                    "Name the {o} word: {l}"};
  const auto words = random_words(random, random.between(2, 8), true);
  const std::size_t at = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(words.size())));
  const std::string_view ordinal = at + 1 == words.size() && random.chance(0.5) ? "last" : kOrdinals[at];
  Problem problem;
  problem.question = fill(random.pick(kAsk), {{"o", ordinal}, {"l", joined(words, ", ")}});
  for (std::size_t before = 0; before <= at; ++before)
    problem.steps += fmt::format("{}{} {}", before ? ", " : "", before + 1, words[before]);
  problem.steps += '.';
  problem.answer = words[at];
  problem.reply = fmt::format("The {} {} is {}.", ordinal,
                              problem.question.find("item") != std::string::npos ? "item" : "word", words[at]);
  return problem;
}

Problem reverse_list(Random& random) {
  constexpr std::array<std::string_view, 3> kAsk = {"Reverse this list: {l}", "Write the list backwards: {l}",
                                                    "Reverse the order of: {l}"};
  auto items = random.chance(0.5) ? random_words(random, random.between(2, 8), true)
                                  : as_text(random_numbers(random, random.between(2, 8), 99));
  Problem problem;
  problem.question = fill(random.pick(kAsk), {{"l", joined(items, ", ")}});
  problem.steps = fmt::format("The last one is {}, so start there.", items.back());
  std::reverse(items.begin(), items.end());
  problem.answer = joined(items, ", ");
  problem.reply = problem.answer;
  return problem;
}

Problem copy_text(Random& random) {
  constexpr std::array<std::string_view, 8> kAsk = {"Repeat exactly: {l}",
                                                    "Repeat after me: {l}",
                                                    "Copy this text: {l}",
                                                    "Say this again: {l}",
                                                    "Write the following text: {l}",
                                                    "Echo: {l}",
                                                    "Please repeat this word for word: {l}",
                                                    "Copy: {l}"};
  std::string text;
  const std::int64_t kind = random.below(4), length = random.between(1, 24);
  if (kind == 0) {
    for (std::int64_t at = 0; at < length; ++at) text += static_cast<char>('0' + random.below(10));
  } else if (kind == 1) {
    for (std::int64_t at = 0; at < length; ++at) text += static_cast<char>('a' + random.below(26));
  } else if (kind == 2) {
    text = joined(random_words(random, length, false), " ");
  } else {
    const std::string_view name = random.pick(kPeople).name, adjective = random.pick(kAdjectives),
                           word = random.pick(kWords), city = random.pick(kCities);
    const std::int64_t number = random.between(2, 99);
    text = fmt::format("{} the {} {} is in {} with {} {}", name, adjective, word, city, number, random.pick(kThings));
  }
  Problem problem;
  problem.question = fill(random.pick(kAsk), {{"l", text}});
  problem.steps = "Copy the text as it is.";
  problem.answer = text;
  problem.reply = text;
  return problem;
}

}  // namespace

Problem list_problem(Random& random, Split split) {
  constexpr std::array kMakers = {count_items, count_one_word, count_up,     sort_numbers, sort_numbers, sort_words,
                                  extreme,     pick_item,      reverse_list, copy_text,    copy_text};
  for (;;) {
    Problem problem = random.pick(kMakers)(random);
    // The list, not its wording, decides the side: the answer and the steps together name its content.
    if (split_of("list " + problem.steps + problem.answer) == split) return problem;
  }
}

}  // namespace k3::train
