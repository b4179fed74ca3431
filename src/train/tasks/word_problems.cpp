// Word problems: a frame (story_frames.h), its words and its numbers are drawn independently, so that the arithmetic
// inside is what has to be learnt. The kind of the frame and the numbers, in whatever order, decide the split; training
// shows no calculation that is held out among the sums.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "train/tasks/arithmetic.h"
#include "train/tasks/problem.h"
#include "train/tasks/story.h"
#include "train/tasks/story_frames.h"

namespace k3::train {

namespace {

constexpr double kInWords = 0.15;    // numbers up to twenty written as words
constexpr double kAskFirst = 0.06;   // the question stands before the story
constexpr double kIntroduced = 0.04; // a few words before the problem
constexpr std::int64_t kLargest = 999;

constexpr std::array<std::string_view, 7> kIntroductions = {
    "Solve this problem:", "Here is a problem.", "Please help me with this.", "Can you solve this?",
    "I have a question.",  "Word problem:",      "Think about this:"};

struct Step {
  char operation;
  std::int64_t left, right;
  std::int64_t result() const {
    return operation == '+' ? left + right : operation == '-' ? left - right : left * right;
  }
  std::string written() const {
    return operation == '+'   ? sum_steps(left, right)
           : operation == '-' ? difference_steps(left, right)
                              : product_steps(left, right);
  }
  std::string formula() const {
    return fmt::format("{} {} {} = {}", left, operation == '*' ? 'x' : operation, right, result());
  }
  std::string check() const {
    if (operation == '+') return fmt::format("{} - {} = {}", result(), right, left);
    if (operation == '-') return fmt::format("{} + {} = {}", result(), right, left);
    return fmt::format("{} x {} = {}", right, left, result());
  }
};

struct Numbers {
  std::int64_t a = 0, b = 0, c = 0;
};

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(';', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "a+b;s-c" with its numbers.
std::vector<Step> steps_of(std::string_view text, const Numbers& numbers) {
  std::vector<Step> steps;
  for (const std::string_view part : parts_of(text)) {
    K3_CHECK(part.size() == 3, "step '{}' of a frame is not two letters and a sign", part);
    const auto value = [&](char name) {
      return name == 'a' ? numbers.a : name == 'b' ? numbers.b : name == 'c' ? numbers.c : steps.back().result();
    };
    steps.push_back({part[1] == 'x' ? '*' : part[1], value(part[0]), value(part[2])});
  }
  return steps;
}

std::int64_t amount(Random& random) {
  if (random.chance(0.25)) return random.between(2, 12);
  return random.chance(0.9) ? random.between(5, 60) : random.between(50, 300);
}

Numbers draw_numbers(Random& random, Scale scale) {
  Numbers numbers;
  if (scale == Scale::years) {
    numbers.a = random.between(3, 60);
    numbers.b = random.between(2, 60);
    return numbers;
  }
  numbers.a = scale == Scale::groups ? random.between(2, 9) : amount(random);
  numbers.b = scale == Scale::groups ? random.between(2, 12) : amount(random);
  numbers.c = amount(random);
  return numbers;
}

// Whether the story makes sense with these numbers, belongs to the split and shows nothing that is held out.
bool fits(const Frame& frame, const Numbers& numbers, const std::vector<Step>& steps, Split split) {
  if (numbers.a == numbers.b && frame.scale != Scale::groups) return false;
  const bool agrees = frame.reply.find("{rthings}") != std::string_view::npos || frame.reply.starts_with('<');
  for (const Step& step : steps)
    if (step.result() < (agrees ? 1 : 2) || step.result() > kLargest) return false;
  std::vector<std::int64_t> sorted = {numbers.a, numbers.b};
  if (frame.steps.find('c') != std::string_view::npos) sorted.push_back(numbers.c);
  std::sort(sorted.begin(), sorted.end());
  if (split_of(fmt::format("word {} {}", frame.kind, fmt::join(sorted, " "))) != split) return false;
  if (split == Split::heldout) return true;
  for (const Step& step : steps)
    if (!for_training(step.operation, step.left, step.right)) return false;
  return true;
}

std::string as_written(std::int64_t number, bool in_words) {
  return in_words && number <= 20 ? number_in_words(number) : fmt::to_string(number);
}

std::string question_of(const Frame& frame, StoryWriter& writer, Random& random) {
  std::string question;
  if (!frame.story.empty() && frame.ask.starts_with('<') && writer.fixed_names() && random.chance(kAskFirst)) {
    question = writer.write(frame.ask);
    question += ' ' + writer.write(frame.story);
  } else if (frame.story.empty()) {
    question = writer.write(frame.ask);
  } else {
    // Written in one go, so that "How many girls are" and "there?" may be one sentence.
    question = writer.write(fmt::format("{} {}", frame.story, frame.ask));
  }
  if (random.chance(kIntroduced)) question = fmt::format("{} {}", random.pick(kIntroductions), question);
  return typed(random, std::move(question));
}

Problem story_problem(Random& random, Split split, const Frame& frame) {
  Numbers numbers;
  std::vector<Step> steps;
  do {
    numbers = draw_numbers(random, frame.scale);
    steps = steps_of(frame.steps, numbers);
  } while (!fits(frame, numbers, steps, split));
  const std::int64_t result = steps.back().result();

  StoryWords words = random_words(random, frame.goods);
  const bool in_words = random.chance(kInWords);
  auto& slots = words.slots;
  slots["a"] = as_written(numbers.a, in_words);
  slots["b"] = as_written(numbers.b, in_words);
  slots["c"] = as_written(numbers.c, in_words);
  slots["n"] = as_written(random.between(2, 15), in_words);
  StoryWriter writer(random, words);
  Problem problem;
  problem.kind = std::string(frame.kind);
  problem.question = question_of(frame, writer, random);

  slots["a"] = fmt::to_string(numbers.a);
  slots["b"] = fmt::to_string(numbers.b);
  slots["c"] = fmt::to_string(numbers.c);
  slots["r"] = fmt::to_string(result);
  slots["rthings"] = result == 1 ? slots["thing"] : slots["things"];
  slots["are"] = result == 1 ? "is" : "are";
  const auto ideas = parts_of(frame.ideas);
  K3_CHECK(ideas.size() == steps.size(), "a frame of kind '{}' has not one idea a step", frame.kind);
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const Step& step = steps[at];
    const std::string idea = writer.write(ideas[at]);
    problem.steps += fmt::format("{}{} {} So {}.", at ? " " : "", idea, step.written(), step.formula());
    problem.brief += fmt::format("{}{}", at ? "; " : "", step.formula());
    problem.check += fmt::format("{}{}", at ? "; " : "Check: ", step.check());
  }
  problem.check += '.';
  problem.reply = writer.reply(frame.reply);
  problem.answer = fmt::to_string(result);
  return problem;
}

}  // namespace

Problem one_step_word_problem(Random& random, Split split) {
  const std::int64_t roll = random.below(100);
  const auto frames = roll < 38   ? change_frames()
                      : roll < 60 ? total_frames()
                      : roll < 82 ? compare_frames()
                                  : scene_frames();
  return story_problem(random, split, random.pick(frames));
}

Problem word_problem(Random& random, Split split) {
  if (random.chance(0.8)) return one_step_word_problem(random, split);
  return story_problem(random, split, random.pick(two_step_frames()));
}

Problem new_form_word_problem(Random& random, Split split) {
  K3_CHECK(split == Split::heldout, "the new story forms are for evaluation alone");
  return story_problem(random, split, random.pick(new_form_frames()));
}

}  // namespace k3::train
