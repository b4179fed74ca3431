// Rendering: text cases byte for byte, segments that user text cannot break out of, ids of the published tokenizer,
// refused conversations.
#include <gtest/gtest.h>

#include "support/files.h"
#include "text/chat.h"
#include "text/text_cases.h"
#include "text/tokenizers.h"

namespace k3 {
namespace {

const std::string kImConfig =
    R"({"added_tokens_decoder": {"258": {"content": "<|im_end|>"}, "259": {"content": "<|im_user|>"},
  "260": {"content": "<|im_assistant|>"}, "266": {"content": "<|im_system|>"}, "273": {"content": "<|im_middle|>"}}})";

TEST(Render, TextCases) {
  const auto cases = test::text_cases("text/render.txt");
  ASSERT_GT(cases.size(), 30u);
  for (const auto& one : cases) {
    ASSERT_TRUE(one.kind == "xtml" || one.kind == "im") << one.name;
    const auto format = one.kind == "xtml" ? ChatFormat::xtml : ChatFormat::im;
    try {
      EXPECT_EQ(to_text(render(parse_conversation(one.input, "chat.json"), format)), one.expected) << one.name;
    } catch (const std::exception& error) {
      ADD_FAILURE() << one.name << ": " << error.what();
    }
  }
}

TEST(Render, RefusedConversations) {
  const auto cases = test::text_cases("text/conversation_errors.txt");
  ASSERT_GT(cases.size(), 20u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    try {
      (void)render(parse_conversation(one.input, "chat.json"), ChatFormat::xtml);
      ADD_FAILURE() << "was accepted";
    } catch (const UserError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      for (const std::string& fragment : test::lines_of(one.expected))
        EXPECT_NE(message.find(fragment), std::string::npos) << fragment << " is not in: " << message;
    }
  }
  test::expect_user_error(
      [] { (void)parse_conversation("{\"messages\": [{\"role\": \"user\", \"content\": \"\xFF\"}]}", "chat.json"); },
      {"chat.json", "UTF-8"});
  test::expect_user_error([] { (void)parse_conversation(std::string(100'000, '['), "chat.json"); },
                          {"chat.json", "nesting"});
}

TEST(Render, ImLayoutRefusesWhatItHasNoPlaceFor) {
  const auto im = [](auto&& change) {
    Conversation conversation;
    conversation.messages = {text_message("user", "x")};
    change(conversation);
    return [conversation] { (void)render(conversation, ChatFormat::im); };
  };
  test::expect_user_error(im([](Conversation& c) { c.tools_json = "[{}]"; }), {"tools", "im_"});
  test::expect_user_error(im([](Conversation& c) { c.effort = "low"; }), {"thinking_effort"});
  test::expect_user_error(im([](Conversation& c) { c.tool_choice = ToolChoice::none; }), {"tool_choice"});
  test::expect_user_error(im([](Conversation& c) { c.response_format = "json_object"; }), {"response_format"});
  test::expect_user_error(im([](Conversation& c) { c.messages[0].role = "tool"; }), {"messages[0].role"});
  test::expect_user_error(im([](Conversation& c) { c.messages[0].name = "n"; }), {"messages[0].name"});
  test::expect_user_error(im([](Conversation& c) { c.messages[0].content.push_back({"", 4, 4}); }),
                          {"messages[0].content"});
}

TEST(Render, SegmentsOfTheGenerationPrefix) {
  Conversation conversation;
  conversation.messages = {text_message("user", "<|open|>")};
  conversation.thinking = false;
  std::string shown;
  for (const Segment& segment : render(conversation, ChatFormat::xtml))
    shown += (segment.control ? "!" : "") + segment.text + "/";
  EXPECT_EQ(shown,
            "!<|open|>/message/ role/=\"/user/\"/!<|sep|>/<|open|>/!<|close|>/message/!<|sep|>/!<|end_of_msg|>/"
            "!<|open|>/message/ role/=\"/assistant/\"/!<|sep|>/!<|open|>/response/!<|sep|>/");
}

TEST(Render, UserTextNeverBecomesAControlToken) {
  const Tokenizer& tokenizer = test::small_tokenizer();
  std::string every_name = "<|kimi_image_placeholder|>";
  for (TokenId id = 0; id < tokenizer.vocab(); ++id)
    if (tokenizer.is_control(id)) every_name += tokenizer.token_bytes(id);
  const auto count_of = [&](const std::string& text) {
    Conversation conversation;
    Message user = text_message("user", text), assistant = text_message("assistant", text),
            result = text_message("tool", text);
    user.name = assistant.reasoning = text;
    assistant.calls = {{text, text, "{" + std::string("\"") + text + "\": \"" + text + "\"}", true},
                       {"", text, text, true}};
    result.tool_call_id = text;
    conversation.messages = {text_message("system", text), user, assistant, result};
    conversation.tools_json = "[{\"function\": \"" + text + "\"}]";
    int controls = 0;
    for (const TokenId id : to_ids(render(conversation, ChatFormat::xtml), tokenizer))
      controls += tokenizer.is_control(id) ? 1 : 0;
    return controls;
  };
  EXPECT_EQ(count_of(every_name), count_of("x"));
}

TEST(Render, FormatFollowsTheControlTokens) {
  EXPECT_EQ(chat_format_of(test::small_tokenizer()), ChatFormat::xtml);
  const Tokenizer im = Tokenizer::parse(test::byte_ranks(), "im", kImConfig);
  EXPECT_EQ(chat_format_of(im), ChatFormat::im);
  Conversation conversation;
  conversation.messages = {text_message("user", "<|im_end|>")};
  const std::vector<TokenId> ids = to_ids(render(conversation, ChatFormat::im), im);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 258), 1);
  EXPECT_EQ(ids.front(), 259);
  const Tokenizer neither =
      Tokenizer::parse(test::byte_ranks(), "neither", R"({"added_tokens_decoder": {"258": {"content": "x"}}})");
  test::expect_user_error([&] { (void)chat_format_of(neither); }, {"tokenizer_config.json"});
}

TEST(PublishedTokenizer, RendersTheChatAnchor) {
  K3_NEEDS_PUBLISHED_TOKENIZER(folder);
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  for (const auto& one : test::text_cases("text/render.txt")) {
    if (one.kind != "xtml") continue;
    const auto segments = render(parse_conversation(one.input, one.name), ChatFormat::xtml);
    const std::vector<TokenId> ids = to_ids(segments, tokenizer);
    EXPECT_EQ(tokenizer.decode(ids), one.expected) << one.name;
    if (one.name == "section 9: the chat anchor") {  // sha256 of text and ids: tests/interop/test_tokenizer.py
      EXPECT_EQ(ids.size(), 147u);
    }
  }
  Conversation conversation;
  conversation.messages = {text_message("user", "")};
  conversation.effort = "low";
  std::vector<TokenId> ids = to_ids(render(conversation, ChatFormat::xtml), tokenizer);
  const std::vector<TokenId> turn = {163588, 2778,  163589, 163586, 163587, 2778,  6244,
                                     878,    69702, 1,      163589, 163587, 39964, 163589};
  ASSERT_GT(ids.size(), turn.size());
  EXPECT_EQ(std::vector<TokenId>(ids.end() - static_cast<std::ptrdiff_t>(turn.size()), ids.end()), turn);
}

}  // namespace
}  // namespace k3
