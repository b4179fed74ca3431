#include "text/chat.h"

#include "base/error.h"
#include "text/xtml.h"

namespace k3 {
namespace {

void refuse_in_im(bool there, const std::string& field) {
  if (there)
    throw_user("{}: the im_ layout of Kimi-Linear has no place for this; leave it out or use a K3 model", field);
}

// <|im_ROLE|>ROLE<|im_middle|>TEXT<|im_end|> ... <|im_assistant|>assistant<|im_middle|>
std::vector<Segment> render_im(const Conversation& conversation) {
  refuse_in_im(!conversation.tools_json.empty(), "tools");
  refuse_in_im(conversation.effort.has_value(), "thinking_effort");
  refuse_in_im(conversation.tool_choice != ToolChoice::automatic, "tool_choice");
  refuse_in_im(!conversation.response_format.empty(), "response_format");
  std::vector<Segment> segments;
  const auto begin = [&segments](const std::string& role) {
    segments.push_back({"<|im_" + role + "|>", true});
    segments.push_back({role, false});
    segments.push_back({"<|im_middle|>", true});
  };
  for (std::size_t index = 0; index < conversation.messages.size(); ++index) {
    const Message& message = conversation.messages[index];
    const std::string place = fmt::format("messages[{}]", index);
    if (message.role != "system" && message.role != "user" && message.role != "assistant")
      refuse_in_im(true, place + ".role '" + message.role + "'");
    refuse_in_im(!message.name.empty(), place + ".name");
    refuse_in_im(!message.calls.empty(), place + ".tool_calls");
    refuse_in_im(!message.tools_json.empty(), place + ".tools");
    begin(message.role);
    for (const ContentPart& part : message.content) {
      refuse_in_im(part.image_width > 0, place + ".content (image)");
      if (!part.text.empty()) segments.push_back({part.text, false});
    }
    if (message.partial) {
      if (message.role != "assistant" || index + 1 != conversation.messages.size())
        throw_user("{}.partial: only the last message can be partial, and it must be the assistant's", place);
      return segments;
    }
    segments.push_back({"<|im_end|>", true});
  }
  if (conversation.add_generation_prefix) begin("assistant");
  return segments;
}

}  // namespace

ChatFormat chat_format_of(const Tokenizer& tokenizer) {
  const auto has_all = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!tokenizer.find_control(name)) return false;
    return true;
  };
  if (has_all({"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"})) return ChatFormat::xtml;
  if (has_all({"<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"}))
    return ChatFormat::im;
  throw_user(
      "the tokenizer has neither the control tokens of XTML (<|open|> ...) nor those of the im_ layout (<|im_user|> "
      "...); check tokenizer_config.json");
}

std::vector<Segment> render(const Conversation& conversation, ChatFormat format) {
  return format == ChatFormat::xtml ? xtml::render(conversation) : render_im(conversation);
}

std::string to_text(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

std::vector<TokenId> to_ids(const std::vector<Segment>& segments, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (const Segment& segment : segments) {
    const std::vector<TokenId> part =
        segment.control ? tokenizer.encode_with_control(segment.text) : tokenizer.encode(segment.text);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

}  // namespace k3
