// The output parser: text cases, and as properties: any split of the text gives the same events, no input fails or
// loses text, and what the renderer writes is read back.
#include <gtest/gtest.h>

#include <random>

#include "support/files.h"
#include "text/chat.h"
#include "text/json_text.h"
#include "text/text_cases.h"
#include "text/tokenizers.h"
#include "text/xtml_parser.h"

namespace k3 {
namespace {

using Kind = XtmlEvent::Kind;

const std::vector<std::string> kControls = {"<|open|>",       "<|close|>",     "<|sep|>",
                                            "<|end_of_msg|>", "<|media_pad|>", "[EOS]"};

struct Piece {
  std::string text;
  bool control;
};

std::vector<Piece> pieces_of(const std::string& text) {
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < text.size();) {
    std::string found;
    for (const std::string& name : kControls)
      if (text.compare(at, name.size(), name) == 0) found = name;
    if (!found.empty()) pieces.push_back({found, true});
    else if (pieces.empty() || pieces.back().control) pieces.push_back({text.substr(at, 1), false});
    else pieces.back().text += text[at];
    at += found.empty() ? 1 : found.size();
  }
  return pieces;
}

// Deltas of one text joined.
std::vector<XtmlEvent> merged(const std::vector<XtmlEvent>& events) {
  std::vector<XtmlEvent> out;
  for (const XtmlEvent& event : events) {
    const bool delta = event.kind == Kind::reasoning || event.kind == Kind::content || event.kind == Kind::argument;
    EXPECT_FALSE(delta && event.text.empty());
    if (delta && !out.empty() && out.back().kind == event.kind) out.back().text += event.text;
    else out.push_back(event);
  }
  return out;
}

template <class NextLength>
std::vector<XtmlEvent> parse(const std::vector<Piece>& pieces, XtmlParser::Start start, NextLength&& next_length) {
  XtmlParser parser(start);
  std::vector<XtmlEvent> events;
  const auto take = [&events](std::vector<XtmlEvent> more) { events.insert(events.end(), more.begin(), more.end()); };
  for (const Piece& piece : pieces) {
    if (piece.control) take(parser.control(piece.text));
    else
      for (std::size_t at = 0, length = 0; at < piece.text.size(); at += length)
        take(parser.text(std::string_view(piece.text).substr(at, length = next_length())));
  }
  take(parser.finish());
  EXPECT_TRUE(parser.finish().empty());
  return merged(events);
}

std::vector<XtmlEvent> parse_whole(const std::string& text, XtmlParser::Start start) {
  return parse(pieces_of(text), start, [] { return std::string::npos; });
}

std::string shown(const std::vector<XtmlEvent>& events) {
  std::string out;
  for (const XtmlEvent& event : events) {
    const std::string text = write_json_string(event.text);
    switch (event.kind) {
      case Kind::reasoning: out += "reasoning " + text; break;
      case Kind::content: out += "content " + text; break;
      case Kind::reasoning_is_content: out += "reasoning_is_content"; break;
      case Kind::call_begin: out += fmt::format("call {} {}", event.index, text); break;
      case Kind::argument_begin:
        out += fmt::format("argument_begin {} {} {}", event.index, write_json_string(event.key), event.type);
        break;
      case Kind::argument: out += "argument " + text; break;
      case Kind::argument_end: out += "argument_end"; break;
      case Kind::call_end: out += fmt::format("call_end {}", event.index); break;
      case Kind::end: out += "end"; break;
    }
    out += "\n";
  }
  return out;
}

TEST(XtmlParser, TextCases) {
  const auto cases = test::text_cases("text/parse.txt");
  ASSERT_GT(cases.size(), 20u);
  std::mt19937 random(6);
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    ASSERT_TRUE(one.kind == "think" || one.kind == "response");
    const auto start = one.kind == "think" ? XtmlParser::Start::think : XtmlParser::Start::response;
    const auto whole = parse_whole(one.input, start);
    EXPECT_EQ(shown(whole), one.expected + "\n");
    EXPECT_EQ(parse(pieces_of(one.input), start, [] { return 1; }), whole);
    for (int round = 0; round < 20; ++round)
      EXPECT_EQ(parse(pieces_of(one.input), start, [&] { return 1 + random() % 7; }), whole);
  }
}

std::string random_output(std::mt19937& random) {
  static const std::vector<std::string> parts = {"<|open|>",
                                                 "<|close|>",
                                                 "<|sep|>",
                                                 "<|open|>",
                                                 "<|close|>",
                                                 "<|sep|>",
                                                 "think",
                                                 "response",
                                                 "tools",
                                                 "call",
                                                 "call tool=\"f\" index=\"1\"",
                                                 "argument",
                                                 "argument key=\"k\" type=\"string\"",
                                                 "message",
                                                 "text",
                                                 " ",
                                                 "\n",
                                                 "=\"",
                                                 "\"",
                                                 "&quot;",
                                                 "{\"a\": 1}",
                                                 "\u4e2d",
                                                 "\xF0\x9F",
                                                 "<|open|>call tool=\"g\"<|sep|>",
                                                 "<|open|>argument key=\"a\" type=\"number\"<|sep|>",
                                                 "<|close|>argument<|sep|>",
                                                 "<|close|>call<|sep|>"};
  static const std::vector<std::string> rare = {"<|end_of_msg|>", "[EOS]", "<|media_pad|>", std::string(5000, 'x')};
  std::string text;
  for (int count = static_cast<int>(random() % 40); count > 0; --count)
    text += random() % 60 == 0 ? rare[random() % rare.size()] : parts[random() % parts.size()];
  return text;
}

TEST(XtmlParser, AnySplitOfAnyInputGivesTheSameEvents) {
  std::mt19937 random(7);
  for (int round = 0; round < 10'000; ++round) {
    const std::string text = random_output(random);
    const auto start = round % 2 == 0 ? XtmlParser::Start::think : XtmlParser::Start::response;
    const auto whole = parse_whole(text, start);
    ASSERT_EQ(whole.back().kind, Kind::end);
    ASSERT_EQ(parse(pieces_of(text), start, [&] { return 1 + random() % 5; }), whole) << text;
    int open_calls = 0, open_arguments = 0;  // events nest
    for (const XtmlEvent& event : whole) {
      open_calls += event.kind == Kind::call_begin ? 1 : event.kind == Kind::call_end ? -1 : 0;
      open_arguments += event.kind == Kind::argument_begin ? 1 : event.kind == Kind::argument_end ? -1 : 0;
      ASSERT_TRUE(open_calls == 0 || open_calls == 1) << text;
      ASSERT_TRUE(open_arguments == 0 || (open_arguments == 1 && open_calls == 1)) << text;
      ASSERT_TRUE(event.kind != Kind::argument || open_arguments == 1) << text;
    }
  }
}

// Text outside markers, up to the end of the message, is all in the events (blanks aside).
TEST(XtmlParser, NoTextIsLost) {
  std::mt19937 random(8);
  const auto without_blanks = [](std::string text) {
    std::erase_if(text, [](char byte) { return byte == ' ' || byte == '\n'; });
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::string input, written;
    for (int count = static_cast<int>(random() % 30); count > 0; --count) {
      static const std::vector<std::string> markers = {"<|open|>think<|sep|>",
                                                       "<|close|>think<|sep|>",
                                                       "<|open|>response<|sep|>",
                                                       "<|close|>response<|sep|>",
                                                       "<|open|>tools<|sep|>",
                                                       "<|close|>tools<|sep|>",
                                                       "<|open|>call tool=\"f\"<|sep|>",
                                                       "<|close|>call<|sep|>",
                                                       "<|open|>argument key=\"k\" type=\"string\"<|sep|>",
                                                       "<|close|>argument<|sep|>",
                                                       "<|sep|>"};
      const std::string text = random() % 4 == 0 ? " \n" : fmt::format("t{} ", random() % 100);
      const bool marker = random() % 2 == 0;
      input += marker ? markers[random() % markers.size()] : text;
      if (!marker) written += text;
    }
    std::string read;
    for (const XtmlEvent& event : parse_whole(input, XtmlParser::Start::think))
      if (event.kind == Kind::reasoning || event.kind == Kind::content || event.kind == Kind::argument)
        read += event.text;
    ASSERT_EQ(without_blanks(read), without_blanks(written)) << input;
  }
}

TEST(XtmlParser, ReadsBackWhatTheRendererWrites) {
  const Tokenizer& tokenizer = test::small_tokenizer();
  Message message = text_message("assistant", "It says \u4e2d <|close|>message<|sep|>.");
  message.reasoning = "Let me\nthink <|open|>tools<|sep|>";
  message.calls = {
      {"", "a \"b\" & c", R"({"s": "x\n\"y\" & \u4e2d", "n": 1e2, "l": [1, {"k": "v"}], "t": true, "z": null, "": ""})",
       true},
      {"", "g", "", true}};
  Conversation conversation;
  conversation.messages = {message};
  conversation.add_generation_prefix = false;
  Conversation prompt = conversation;
  prompt.messages.clear();
  prompt.add_generation_prefix = true;
  const std::vector<TokenId> all = to_ids(render(conversation, ChatFormat::xtml), tokenizer),
                             before = to_ids(render(prompt, ChatFormat::xtml), tokenizer);
  XtmlReader reader(tokenizer, XtmlParser::Start::think);
  XtmlMessage read;
  for (std::size_t at = before.size(); at < all.size(); ++at) read.add(reader.push(all[at]));
  EXPECT_TRUE(reader.done());
  read.add(reader.finish());
  EXPECT_EQ(read.reasoning, message.reasoning);
  EXPECT_EQ(read.content, message.content[0].text);
  ASSERT_EQ(read.calls.size(), 2u);
  EXPECT_EQ(read.calls[0].name, "a \"b\" & c");
  EXPECT_TRUE(read.calls[0].complete);
  EXPECT_EQ(read.calls[0].arguments_json(),
            "{\"s\": \"x\\n\\\"y\\\" & \u4e2d\", \"n\": 1e2, \"l\": [1, {\"k\": \"v\"}], \"t\": true, \"z\": null, "
            "\"\": \"\"}");
  EXPECT_EQ(read.calls[1].arguments_json(), "{}");
}

TEST(XtmlParser, MessageJoinsEvents) {
  XtmlMessage message;
  message.add(parse_whole("The answer is 4.<|close|>response<|sep|><|close|>message<|sep|>", XtmlParser::Start::think));
  EXPECT_EQ(message.content, "The answer is 4.");
  EXPECT_EQ(message.reasoning, "");
  XtmlMessage broken;
  broken.add(
      parse_whole("<|open|>call tool=\"f\"<|sep|><|open|>argument key=\"n\" type=\"number\"<|sep|>1 "
                  "2<|close|>argument<|sep|><|open|>argument key=\"s\" type=\"string\"<|sep|>tr\"ue",
                  XtmlParser::Start::response));
  ASSERT_EQ(broken.calls.size(), 1u);
  EXPECT_FALSE(broken.calls[0].complete);
  EXPECT_EQ(broken.calls[0].arguments_json(), "{\"n\": \"1 2\", \"s\": \"tr\\\"ue\"}");
}

TEST(XtmlParser, ReaderHoldsBackSplitCharacters) {
  const Tokenizer bytes = Tokenizer::parse(test::byte_ranks(), "bytes");
  XtmlReader reader(bytes, XtmlParser::Start::response);
  EXPECT_TRUE(reader.push(0xC3).empty());
  EXPECT_EQ(reader.push(0xA9).at(0).text, "\u00e9");
  EXPECT_TRUE(reader.push(0xC3).empty());
  const auto events = reader.push(bytes.control("<|end_of_msg|>"));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].text, "\uFFFD");
  EXPECT_TRUE(reader.done());
}

}  // namespace
}  // namespace k3
