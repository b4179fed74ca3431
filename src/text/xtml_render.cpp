// A conversation as XTML (checkpoint.md 5.2 to 5.5). Order: tools, effort, messages, tool choice, response format,
// generation prefix.
#include <algorithm>
#include <map>
#include <span>

#include "base/error.h"
#include "text/json_text.h"
#include "text/xtml.h"

namespace k3::xtml {
namespace {

std::string sorted_json(const std::string& json, const std::string& field) {
  return write_json(parse_json(json, field), kSortedCompact);
}

std::string tools_body(const std::string& json) {
  return "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n" + json + "\n```";
}

std::string more_tools_body(const std::string& json) {
  return "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
         "You have access to all existing and extended tools.\nHere are the specs for the extended "
         "tools.\n\n```json\n" +
         json + "\n```";
}

std::string effort_body(const std::string& effort) {
  return "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
         "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with "
         "`thinking_effort=" +
         effort + "`.";
}

constexpr std::string_view kRequiredBody =
    "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.";
constexpr std::string_view kNoToolsBody =
    "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";

std::string response_format_body(const std::string& format) {
  return "The system is invoked with `response_format=" + format +
         "`.\nYour response must be raw JSON data without markdown code blocks (```json) or any additional formatting.";
}

Attributes role_and_name(const Message& message) {
  Attributes attributes = {{"role", message.role}};
  if (!message.name.empty()) attributes.emplace_back("name", message.name);
  return attributes;
}

void write_content(Writer& out, const Message& message) {
  for (const ContentPart& part : message.content) {
    if (part.image_width > 0)
      out.control(fmt::format("<|media_begin|>image {}x{}<|media_content|><|media_pad|><|media_end|>", part.image_width,
                              part.image_height));
    else out.text(part.text);
  }
}

void write_argument(Writer& out, const std::string& key, const JsonValue& value, bool literal) {
  std::string text;
  if (value.is(JsonValue::Kind::string)) text = value.text;
  else text = literal ? std::string(value.literal) : write_json(value, kSpaced);
  out.element("argument", {{"key", key}, {"type", json_kind_name(value.kind)}}, text);
}

void write_arguments(Writer& out, const ToolCall& call) {
  if (call.arguments.empty()) return;
  const JsonResult parsed = parse_json_prefix(call.arguments);
  const bool is_object = parsed.ok && parsed.value.is(JsonValue::Kind::object);
  if (call.arguments_are_text) {
    if (!is_object) return out.element("json", {{"type", "object"}}, call.arguments);
    for (const auto& [key, value] : parsed.value.members) write_argument(out, key, value, true);
    return;
  }
  K3_CHECK(is_object, "arguments that are no text must be a JSON object");
  std::vector<std::string> written;  // a dict: of equal keys the last value, at the first one's place
  for (const auto& [key, value] : parsed.value.members) {
    if (std::find(written.begin(), written.end(), key) != written.end()) continue;
    written.push_back(key);
    write_argument(out, key, *parsed.value.find(key), false);
  }
}

void write_assistant(Writer& out, const Message& message, bool thinking) {
  out.open("message", role_and_name(message));
  if (thinking) out.element("think", {}, message.reasoning);
  out.open("response");
  write_content(out, message);
  if (message.partial) return;
  out.close("response");
  if (!message.calls.empty()) {
    out.open("tools");
    for (std::size_t call = 0; call < message.calls.size(); ++call) {
      out.open("call", {{"tool", message.calls[call].name}, {"index", std::to_string(call + 1)}});
      write_arguments(out, message.calls[call]);
      out.close("call");
    }
    out.close("tools");
  }
  out.end_message();
}

// Tool results after one assistant message.
class ToolResults {
 public:
  void start(const std::vector<ToolCall>& calls) {
    calls_ = calls;
    written_ = 0;
  }

  // A run of tool messages: in the order of the calls when every id is one of theirs. `first` is the first one's
  // place, for errors.
  void write(Writer& out, std::span<const Message> messages, std::size_t first) {
    struct Result {
      std::size_t call, place;
    };
    std::vector<Result> results;
    for (std::size_t index = 0; index < messages.size(); ++index) results.push_back({call_of(messages[index]), index});
    if (std::none_of(results.begin(), results.end(),
                     [this](const Result& result) { return result.call == calls_.size(); }))
      std::stable_sort(results.begin(), results.end(),
                       [](const Result& left, const Result& right) { return left.call < right.call; });
    for (const Result& result : results) {
      const Message& message = messages[result.place];
      std::string tool = result.call < calls_.size() ? calls_[result.call].name : message.name;
      if (tool.empty() && written_ < calls_.size()) tool = calls_[written_].name;
      if (tool.empty())
        throw_user(
            "messages[{}]: this tool result answers no call of the assistant message before it; give a tool_call_id or "
            "a name",
            first + result.place);
      out.open("message", {{"role", "tool"}, {"tool", tool}, {"index", std::to_string(++written_)}});
      write_content(out, message);
      out.end_message();
    }
  }

 private:
  std::size_t call_of(const Message& message) const {
    if (message.tool_call_id.empty()) return calls_.size();
    const auto found = std::find_if(calls_.begin(), calls_.end(),
                                    [&](const ToolCall& call) { return call.id == message.tool_call_id; });
    return static_cast<std::size_t>(found - calls_.begin());
  }

  std::vector<ToolCall> calls_;
  std::size_t written_ = 0;
};

void write_messages(Writer& out, const Conversation& conversation) {
  const std::vector<Message>& messages = conversation.messages;
  ToolResults results;
  for (std::size_t index = 0; index < messages.size(); ++index) {
    const Message& message = messages[index];
    if (message.partial && (message.role != "assistant" || index + 1 != messages.size()))
      throw_user("messages[{}].partial: only the last message can be partial, and it must be the assistant's", index);
    if (message.role == "system" && !message.tools_json.empty()) {
      out.message({{"role", "system"}, {"type", "tool-declare"}},
                  more_tools_body(sorted_json(message.tools_json, fmt::format("messages[{}].tools", index))));
    } else if (message.role == "system" || message.role == "user") {
      out.open("message", role_and_name(message));
      write_content(out, message);
      out.end_message();
    } else if (message.role == "assistant") {
      write_assistant(out, message, conversation.thinking);
      results.start(message.calls);
    } else if (message.role == "tool") {
      std::size_t end = index + 1;
      while (end < messages.size() && messages[end].role == "tool") ++end;
      results.write(out, std::span(messages).subspan(index, end - index), index);
      index = end - 1;
    } else {
      throw_user("messages[{}].role: '{}' is not one of system, user, assistant, tool", index, message.role);
    }
  }
}

void write_options_before(Writer& out, const Conversation& conversation) {
  if (!conversation.tools_json.empty()) {
    const JsonValue tools = parse_json(conversation.tools_json, "tools");
    if (!tools.is(JsonValue::Kind::array)) throw_user("tools: is {}, not a list of tools", json_kind_name(tools.kind));
    if (!tools.items.empty())
      out.message({{"role", "system"}, {"type", "tool-declare"}}, tools_body(write_json(tools, kSortedCompact)));
  }
  if (!conversation.thinking) return;
  const std::string effort = conversation.effort.value_or("max");
  if (effort != "low" && effort != "high" && effort != "max")
    throw_user("thinking_effort: '{}' is not one of low, high, max", effort);
  out.message({{"role", "system"}, {"type", "thinking-effort"}}, effort_body(effort));
}

void write_options_after(Writer& out, const Conversation& conversation) {
  if (conversation.tool_choice != ToolChoice::automatic)
    out.message({{"role", "system"}, {"type", "tool-choice"}},
                conversation.tool_choice == ToolChoice::required ? kRequiredBody : kNoToolsBody);
  if (conversation.response_format.empty()) return;
  std::string body = response_format_body(conversation.response_format);
  if (conversation.response_format == "json_schema")
    body += "\nThe JSON data must match the following schema:\n```json\n" +
            sorted_json(conversation.response_schema_json, "response_format.json_schema.schema") + "\n```";
  else if (conversation.response_format != "json_object")
    throw_user("response_format.type: '{}' is not one of text, json_object, json_schema", conversation.response_format);
  out.message({{"role", "system"}, {"type", "response-format"}}, body);
}

}  // namespace

std::vector<Segment> render(const Conversation& conversation) {
  Writer out;
  write_options_before(out, conversation);
  const bool continues = !conversation.messages.empty() && conversation.messages.back().partial;
  if (continues && (conversation.tool_choice != ToolChoice::automatic || !conversation.response_format.empty()))
    throw_user(
        "messages[{}].partial: cannot be combined with tool_choice or response_format, which stand after the last "
        "message",
        conversation.messages.size() - 1);
  write_messages(out, conversation);
  if (continues) return out.take();
  write_options_after(out, conversation);
  if (conversation.add_generation_prefix) {
    out.open("message", {{"role", "assistant"}});
    out.open(conversation.thinking ? "think" : "response");
  }
  return out.take();
}

}  // namespace k3::xtml
