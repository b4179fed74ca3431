// Replies taken apart and judged; loss masks of documents.
#include "train/tasks/answers.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "support/files.h"
#include "train/tasks/generator.h"

namespace k3::train {
namespace {

// 256 byte ranks and the control tokens.
Tokenizer byte_tokenizer() {
  const test::TempDir folder;
  BpeTrainOptions options;
  options.ranks = 256;
  const std::vector<std::string> nothing = {"abc"};
  write_file_atomic(folder / "tiktoken.model", train_bpe(nothing, options));
  return Tokenizer::load(folder.path());
}

std::vector<std::int64_t> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode_with_control(text);
  return {ids.begin(), ids.end()};
}

TEST(Answers, LastNumber) {
  EXPECT_EQ(last_number("Tom has 42 apples."), "42");
  EXPECT_EQ(last_number("17 + 25 = 42"), "42");
  EXPECT_EQ(last_number("17 - 25 = -8"), "-8");
  EXPECT_EQ(last_number("17 - 8"), "8");
  EXPECT_EQ(last_number("It is 1,204."), "1204");
  EXPECT_EQ(last_number("The list is 3, 17"), "17");
  EXPECT_EQ(last_number("42.5"), std::nullopt);
  EXPECT_EQ(last_number("none"), std::nullopt);
  EXPECT_EQ(last_number("-5"), "-5");
}

TEST(Answers, OnlyTheResponseOfACompleteReplyCounts) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::string end = "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>";
  const auto reply = parse_reply(
      ids_of(tokenizer, "7 + 5 = 12<|close|>think<|sep|><|open|>response<|sep|>It is 42." + end), tokenizer, true);
  EXPECT_EQ(reply.reasoning, "7 + 5 = 12");
  EXPECT_EQ(reply.content, "It is 42.");
  EXPECT_TRUE(right_number(reply, "42"));
  EXPECT_FALSE(right_number(reply, "12"));
  const auto cut = parse_reply(ids_of(tokenizer, "<|close|>think<|sep|><|open|>response<|sep|>42"), tokenizer, true);
  EXPECT_FALSE(right_number(cut, "42")) << "no end";
  const auto unsaid =
      parse_reply(ids_of(tokenizer, "42<|close|>think<|sep|><|open|>response<|sep|>" + end), tokenizer, true);
  EXPECT_FALSE(right_number(unsaid, "42")) << "only thought";
  const auto direct = parse_reply(ids_of(tokenizer, "42" + end), tokenizer, false);
  EXPECT_TRUE(right_number(direct, "42"));
  EXPECT_TRUE(
      right_key(parse_reply(ids_of(tokenizer, "The key of room 7 is 58213." + end), tokenizer, false), "58213"));
  EXPECT_FALSE(right_key(parse_reply(ids_of(tokenizer, "58213 or 58214" + end), tokenizer, false), "58213"));
  EXPECT_FALSE(right_key(parse_reply(ids_of(tokenizer, "582134" + end), tokenizer, false), "58213"));
}

TEST(Answers, CallsCompareByTypeAndValue) {
  const Tokenizer tokenizer = byte_tokenizer();
  const auto called = [&](const std::string& name, const std::string& type, const std::string& value) {
    const std::string text =
        "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"" + name +
        "\" index=\"1\"<|sep|><|open|>argument key=\"n\" type=\"" + type + "\"<|sep|>" + value +
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>";
    return parse_reply(ids_of(tokenizer, text), tokenizer, false);
  };
  const ToolCall number{"", "timer", R"({"n": 5})", false}, text{"", "timer", R"({"n": "5"})", false};
  EXPECT_TRUE(right_call(called("timer", "number", "5"), number));
  EXPECT_TRUE(right_call(called("timer", "number", "5.0"), number));
  EXPECT_TRUE(right_call(called("timer", "string", "5"), text));
  EXPECT_FALSE(right_call(called("timer", "string", "5"), number));
  EXPECT_FALSE(right_call(called("timer", "number", "6"), number));
  EXPECT_FALSE(right_call(called("timer", "boolean", "5"), number));
  EXPECT_FALSE(right_call(called("alarm", "number", "5"), number));
}

// The counted ids are exactly what follows each generation prefix, up to <|end_of_msg|>; all ids are the rendering.
TEST(TrainingIds, MaskCoversWhatTheModelWrites) {
  const Tokenizer tokenizer = byte_tokenizer();
  for (const char* name : {"arithmetic", "tools", "mixed"}) {
    const auto generator = make_generator(name, 21, Split::train);
    for (int at = 0; at < 40; ++at) {
      const Document document = generator->next();
      const TrainingIds made = to_training_ids(document, tokenizer);
      EXPECT_EQ(made.ids, to_ids(render(*document.conversation, ChatFormat::xtml), tokenizer));
      std::string counted, wanted;
      for (std::size_t i = 0; i < made.ids.size(); ++i)
        if (made.loss[i]) counted += tokenizer.token_bytes(made.ids[i]);
      const std::string all = to_text(render(*document.conversation, ChatFormat::xtml));
      const std::string prefix = std::string("<|open|>message role=\"assistant\"<|sep|><|open|>") +
                                 (document.conversation->thinking ? "think" : "response") + "<|sep|>";
      const std::string end = "<|end_of_msg|>";
      for (std::size_t start = all.find(prefix); start != std::string::npos; start = all.find(prefix, start + 1)) {
        const std::size_t from = start + prefix.size();
        wanted += all.substr(from, all.find(end, from) + end.size() - from);
      }
      EXPECT_EQ(counted, wanted);
    }
  }
  const TrainingIds text = to_training_ids({"ab", std::nullopt, ""}, tokenizer);
  ASSERT_EQ(text.ids.size(), 3u);
  EXPECT_EQ(text.ids.back(), tokenizer.control("[EOS]"));
  EXPECT_EQ(text.loss, (std::vector<std::uint8_t>{1, 1, 1}));
}

}  // namespace
}  // namespace k3::train
