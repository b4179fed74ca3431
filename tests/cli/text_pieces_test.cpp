// Stop strings, id lists, and finding what a conversation still has to read.
#include <gtest/gtest.h>

#include "cli/chat_session.h"
#include "cli/id_list.h"
#include "cli/stop_text.h"
#include "support/files.h"

namespace k3::cli {
namespace {

// Any split of the text gives the same result.
std::string stopped_text(const std::string& text, const std::vector<std::string>& stops, std::size_t piece, bool& stopped) {
  StopText filter(stops);
  std::string shown;
  for (std::size_t at = 0; at < text.size(); at += piece) shown += filter.push(text.substr(at, piece));
  shown += filter.finish();
  stopped = filter.stopped();
  return shown;
}

struct StopCase {
  std::string text;
  std::vector<std::string> stops;
  std::string shown;
  bool stopped;
};

TEST(StopText, EndsBeforeTheFirstStopHoweverTheTextIsCut) {
  const std::vector<StopCase> cases = {
      {"one two three", {"two"}, "one ", true},   {"one two three", {"four"}, "one two three", false},
      {"aab", {"ab"}, "a", true},                 {"aaab", {"aab"}, "a", true},
      {"say STO", {"STOP"}, "say STO", false},    {"x\n\ny", {"\n\n"}, "x", true},
      {"abcabd", {"abd", "bca"}, "a", true},      {"", {"x"}, "", false},
  };
  for (const StopCase& expected : cases)
    for (std::size_t piece = 1; piece <= 5; ++piece) {
      bool stopped = false;
      EXPECT_EQ(stopped_text(expected.text, expected.stops, piece, stopped), expected.shown) << expected.text << " in pieces of " << piece;
      EXPECT_EQ(stopped, expected.stopped) << expected.text;
    }
}

TEST(StopText, ShowsAtOnceWhatCannotBelongToAStop) {
  StopText filter({"STOP"});
  EXPECT_EQ(filter.push("abc S"), "abc ");
  EXPECT_EQ(filter.push("x"), "Sx");
}

TEST(IdList, ReadsNumbersWithAnySeparator) {
  EXPECT_EQ(parse_ids("1,2,3", "--ids"), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(parse_ids(" [4, 5]\n6 ", "--ids"), (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_TRUE(parse_ids("", "--ids").empty());
}

TEST(IdList, NamesWhatIsNoNumber) {
  test::expect_user_error([] { parse_ids("1,two,3", "ids.txt"); }, {"ids.txt", "two"});
  test::expect_user_error([] { parse_ids("1.5", "--ids"); }, {"--ids", "1.5"});
  test::expect_user_error([] { parse_ids("99999999999999999999", "--ids"); }, {"--ids", "9999"});
}

TEST(History, ContinuesOnlyBehindAWholeSegment) {
  const std::vector<Segment> segments = {{"<|open|>", true}, {"message", false}, {"<|sep|>", true}, {"hello", false}};
  EXPECT_EQ(segments_behind(segments, ""), 0u);
  EXPECT_EQ(segments_behind(segments, "<|open|>message"), 2u);
  EXPECT_EQ(segments_behind(segments, "<|open|>message<|sep|>hello"), 4u);
  EXPECT_EQ(segments_behind(segments, "<|open|>message<|sep|>hel"), std::nullopt);
  EXPECT_EQ(segments_behind(segments, "<|open|>massage"), std::nullopt);
  EXPECT_EQ(segments_behind(segments, "<|open|>message<|sep|>hello more"), std::nullopt);
}

}  // namespace
}  // namespace k3::cli
