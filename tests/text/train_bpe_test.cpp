// Vocabulary training: merges against counting everything anew each time, digits, determinism, errors.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "support/files.h"
#include "text/pretokenize.h"
#include "text/tokenizers.h"

namespace k3 {
namespace {

std::vector<std::string> tokens_of(const std::string& file) {
  const RankTable table = RankTable::parse(file, "trained");
  std::vector<std::string> tokens;
  for (std::int32_t rank = 0; rank < table.size(); ++rank) tokens.emplace_back(table.bytes(rank));
  return tokens;
}

// Counts all pairs of all words before every merge. Tokens are strings; ids only break ties.
std::vector<std::string> train_by_definition(const std::string& text, std::size_t ranks) {
  std::vector<std::string> tokens;
  std::map<std::string, int> ids;
  for (int value = 0; value < 256; ++value) ids[tokens.emplace_back(1, static_cast<char>(value))] = value;
  std::vector<std::vector<std::string>> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = piece_end(text, at);
    words.emplace_back();
    for (; at < end; ++at) words.back().emplace_back(1, text[at]);
  }
  while (tokens.size() < ranks) {
    std::map<std::pair<int, int>, int> counts;
    for (const auto& word : words)
      for (std::size_t at = 0; at + 1 < word.size(); ++at) ++counts[{ids.at(word[at]), ids.at(word[at + 1])}];
    std::pair<int, int> best;
    int most = 0;
    for (const auto& [pair, count] : counts)
      if (count > most) most = count, best = pair;
    const std::string left = tokens[static_cast<std::size_t>(best.first)],
                      right = tokens[static_cast<std::size_t>(best.second)];
    if (ids.emplace(left + right, static_cast<int>(tokens.size())).second) tokens.push_back(left + right);
    for (auto& word : words)
      for (std::size_t at = 0; at + 1 < word.size(); ++at)
        if (word[at] == left && word[at + 1] == right) {
          word[at] += right;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        }
  }
  return tokens;
}

TEST(TrainBpe, EqualsTrainingByDefinition) {
  std::mt19937 random(4);
  for (int round = 0; round < 10; ++round) {
    std::string text;
    for (int index = 0; index < 3000; ++index) text += "aaabbcd  e\n1"[random() % (4 + round % 9)];
    EXPECT_EQ(tokens_of(train_bpe(std::vector<std::string>{text}, {.ranks = 300})), train_by_definition(text, 300));
  }
}

TEST(TrainBpe, SplitDigitsKeepsEveryDigitAlone) {
  std::string text;
  std::mt19937 random(5);
  for (int index = 0; index < 4000; ++index)
    text += fmt::format("{} apples, {} pears and\u00bd{}\n", random() % 10, random() % 1000, random() % 100);
  const std::vector<std::string> documents = {text};
  const Tokenizer split = Tokenizer::parse(train_bpe(documents, {.ranks = 268, .split_digits = true}), "split");
  EXPECT_EQ(split.encode("1234567890").size(), 10u);
  EXPECT_LT(split.encode(" apples").size(), 7u);
  const Tokenizer joined = Tokenizer::parse(train_bpe(documents, {.ranks = 300}), "joined");
  EXPECT_LT(joined.encode("1234567890").size(), 10u);
}

TEST(TrainBpe, LooksAtNoMoreTextThanAskedFor) {
  const std::string head = "the theme then there the other ";
  const auto first_only = train_bpe(std::vector<std::string>{head}, {.ranks = 262});
  EXPECT_EQ(train_bpe(std::vector<std::string>{head, "zzzz zzzz zzzz"},
                      {.ranks = 262, .max_bytes = static_cast<std::int64_t>(head.size())}),
            first_only);
  EXPECT_NE(train_bpe(std::vector<std::string>{head, "zzzz zzzz zzzz"}, {.ranks = 262}), first_only);
}

TEST(TrainBpe, RefusesWhatItCannotDo) {
  const std::vector<std::string> documents = {"ab ab"};
  test::expect_user_error([&] { train_bpe(documents, {.ranks = 255}); }, {"255", "at least 256"});
  test::expect_user_error([&] { train_bpe(documents, {.ranks = 4000}); }, {"4000", "more text"});
  test::expect_user_error([&] { train_bpe(documents, {.ranks = 257, .max_bytes = 0}); }, {"max_bytes"});
}

}  // namespace
}  // namespace k3
