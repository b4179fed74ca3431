// Conversations and their rendering to id segments: XTML for K3 (checkpoint.md 5), im_ tokens for Kimi-Linear
// (section 4). Message text is always encoded with special matching off, so user text can never make a control token.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace k3 {

struct ToolCall {
  std::string id, name;
  std::string arguments;           // JSON text, or the literal string the caller sent
  bool arguments_are_text = true;  // true: came as a JSON string, literal bytes kept; false: came as a parsed object
};

struct ContentPart {
  std::string text;                       // text part when image_width == 0
  int image_width = 0, image_height = 0;  // pixels of the image as it came, before any resizing
};

struct Message {
  std::string role;  // system, user, assistant, tool
  std::string name;
  std::vector<ContentPart> content;
  std::string reasoning;        // assistant only
  std::vector<ToolCall> calls;  // assistant only
  bool partial = false;  // assistant, last message only: the answer goes on from here, its response channel stays open
  std::string tool_call_id;  // tool only
  std::string tools_json;    // system message that declares more tools
};

enum class ToolChoice { automatic, required, none };

struct Conversation {
  std::vector<Message> messages;
  std::string tools_json;             // OpenAI-style list; empty: none
  std::optional<std::string> effort;  // low, high, max; absent with thinking: max
  bool thinking = true;
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string response_format;  // "", "json_object", "json_schema"
  std::string response_schema_json;
  bool add_generation_prefix = true;
};

inline Message text_message(std::string role, std::string text) {
  Message message;
  message.role = std::move(role);
  message.content.push_back({std::move(text), 0, 0});
  return message;
}

// OpenAI-style JSON ({"messages": [...], "tools": ..., "thinking_effort": ..., ...}); errors name the field.
Conversation parse_conversation(const std::string& json, const std::string& name_for_errors);

struct Segment {
  std::string text;
  bool control = false;  // encoded with special matching on
};

enum class ChatFormat { xtml, im };
ChatFormat chat_format_of(const Tokenizer& tokenizer);  // by its control tokens

// Errors name the field as parse_conversation does. The im layout has system, user and assistant text and nothing
// else: images, tools, efforts and response formats are refused, earlier reasoning is left out because that layout
// has no place for it.
std::vector<Segment> render(const Conversation& conversation, ChatFormat format);
std::string to_text(const std::vector<Segment>& segments);
std::vector<TokenId> to_ids(const std::vector<Segment>& segments, const Tokenizer& tokenizer);

}  // namespace k3
