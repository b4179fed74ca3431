// Word problems: right by an independent solver, in plain English form, held out by content, with new forms that
// training never has.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "train/tasks/generator.h"
#include "train/tasks/solver.h"

namespace k3::train {
namespace {

using test::contains;
using test::content_of;

struct Turn {
  std::string kind, question, reasoning, reply;
};

// The last turn of `count` documents.
std::vector<Turn> turns(const std::string& name, int count, Split split, std::uint64_t seed = 11) {
  const auto generator = make_generator(name, seed, split);
  std::vector<Turn> out;
  for (int at = 0; at < count; ++at) {
    const Document document = generator->next();
    const auto& messages = document.conversation->messages;
    const Message& reply = messages.back();
    out.push_back({document.kind, content_of(messages[messages.size() - 2]), reply.reasoning, content_of(reply)});
  }
  return out;
}

void check_turns(const std::vector<Turn>& all, std::size_t most_unsolved) {
  std::size_t unsolved = 0;
  for (const Turn& turn : all) {
    if (const auto wrong = test::wrong_equation(turn.reasoning)) ADD_FAILURE() << turn.question << ": " << *wrong;
    const auto said = test::numbers_of(turn.reply);
    ASSERT_FALSE(said.empty()) << turn.question << " -> " << turn.reply;
    const bool two = turn.kind == "++" || turn.kind == "--" || turn.kind == "+-" || turn.kind == "-+";
    std::optional<std::int64_t> wanted;
    for (const std::size_t count : {2u, 3u})
      if (!wanted && !(two && count == 2))
        wanted = test::solve_story(turn.kind, turn.question, test::story_numbers(turn.question, count));
    if (!wanted) {
      ++unsolved;  // a number that does not matter stands in the story
      continue;
    }
    EXPECT_EQ(said.back(), *wanted) << turn.kind << ": " << turn.question << " -> " << turn.reply;
  }
  EXPECT_LE(unsolved, most_unsolved);
}

TEST(Stories, OneStepIsRight) {
  check_turns(turns("wordproblems-1step", 3000, Split::train), 90);
  check_turns(turns("wordproblems-1step", 1000, Split::heldout), 30);
}

TEST(Stories, TwoStepsAreRight) {
  const auto all = turns("wordproblems", 3000, Split::train);
  check_turns(all, 90);
  EXPECT_GT(std::count_if(all.begin(), all.end(), [](const Turn& turn) { return turn.kind == "+-"; }), 30);
}

// Not read: "two days" next to numbers in words.
TEST(Stories, NewFormsAreRight) { check_turns(turns("wordproblems-newforms", 500, Split::heldout), 15); }

// Words of the question alone: what is left is less than what was there, a total is not less than any part.
TEST(Stories, WordsAgreeWithTheResult) {
  int left = 0, total = 0;
  for (const Turn& turn : turns("wordproblems-1step", 3000, Split::train)) {
    const auto numbers = test::story_numbers(turn.question, 2);
    const std::int64_t result = test::numbers_of(turn.reply).back();
    const std::string asked = turn.question.substr(turn.question.find_last_of(".?,", turn.question.size() - 2) + 1);
    if (contains(asked, " left") && !contains(asked, "leave there")) {
      ++left;
      EXPECT_LT(result, *std::max_element(numbers.begin(), numbers.end())) << turn.question;
    }
    if (contains(asked, "altogether") || contains(asked, "in all") || contains(asked, "together")) {
      ++total;
      EXPECT_GE(result, *std::max_element(numbers.begin(), numbers.begin() + 2)) << turn.question;
    }
  }
  EXPECT_GT(left, 300);
  EXPECT_GT(total, 300);
}

TEST(Stories, SentencesAreWellFormed) {
  static const std::regex kWrong(R"([{}|<>\[\]~#()]|  | [.,?]|\ba [aeio]|\b(I|we|they|you) (has|is|was a)\b)"
                                 R"(|\b1 [a-z]+s (is|are|left)\b|\.\.|\?\.| a a |\bthe the\b)");
  for (const char* name : {"wordproblems", "wordproblems-newforms"})
    for (const Turn& turn : turns(name, 4000, Split::heldout, 12)) {
      std::smatch found;
      for (const std::string& text : {turn.question, turn.reply})
        if (std::regex_search(text, found, kWrong)) ADD_FAILURE() << text << ": '" << found.str() << "'";
      EXPECT_TRUE(turn.reply.ends_with('.')) << turn.reply;
    }
}

std::string essence(const Turn& turn) {
  auto numbers = test::story_numbers(turn.question, 2);
  std::sort(numbers.begin(), numbers.end());
  std::string out = turn.kind;
  for (const std::int64_t number : numbers) out += " " + std::to_string(number);
  return out;
}

// The kind and the numbers decide the split, whatever the wording and the order.
TEST(Stories, HeldOutNeverInTraining) {
  std::set<std::string> heldout;
  for (const Turn& turn : turns("wordproblems", 1500, Split::heldout, 1)) heldout.insert(essence(turn));
  EXPECT_GT(heldout.size(), 800u);
  for (const Turn& turn : turns("wordproblems", 6000, Split::train, 2))
    EXPECT_FALSE(heldout.contains(essence(turn))) << turn.question;
}

TEST(Stories, NewFormsStandNowhereInTraining) {
  std::map<std::string, int> kinds;
  for (const Turn& turn : turns("wordproblems-newforms", 400, Split::heldout)) ++kinds[turn.kind];
  EXPECT_GE(kinds.size(), 12u);
  std::string training;
  for (const char* name : {"wordproblems", "mixed", "tools"})
    for (const Turn& turn : turns(name, 4000, Split::train)) training += turn.question + "\n";
  for (const char* words : {"parking lot", "hens laid", "burning", "museum", "tower", "goals", "theater", "leak",
                            "fence", "orchard", "jigsaw", "tulips", "harbor", "full bottles", "new books", "chess"})
    EXPECT_FALSE(contains(training, words)) << words;
}

TEST(Stories, ManyForms) {
  std::map<std::string, int> kinds;
  for (const Turn& turn : turns("wordproblems", 6000, Split::train)) ++kinds[turn.kind];
  EXPECT_GE(kinds.size(), 60u);
}

}  // namespace
}  // namespace k3::train
