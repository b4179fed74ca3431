// OpenAI-style JSON to a Conversation. Fields that only steer sampling or transport are known and skipped; a
// top-level field that nobody knows is an error, so that a misspelt option cannot be lost. Inside messages unknown
// fields are skipped: clients send back what servers added to their answers.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "text/chat.h"
#include "text/json_text.h"

namespace k3 {
namespace {

using Kind = JsonValue::Kind;

// A value and the path that errors call it by.
class Field {
 public:
  Field(const JsonValue& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const JsonValue& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is(Kind kind) const { return value_->is(kind); }

  std::optional<Field> find(const std::string& key) const {  // null counts as absent
    const JsonValue* member = value_->find(key);
    if (member == nullptr || member->is(Kind::null)) return std::nullopt;
    return Field(*member, path_ + (path_.ends_with(": ") ? "" : ".") + key);
  }
  Field at(const std::string& key) const {
    const auto field = find(key);
    if (!field) throw_user("{}{}{} is missing", path_, path_.ends_with(": ") ? "" : ".", key);
    return *field;
  }
  Field item(std::size_t index) const { return Field(value_->items[index], fmt::format("{}[{}]", path_, index)); }

  const Field& require(Kind kind) const {
    if (!is(kind)) throw_user("{} is {}, wanted {}", path_, json_kind_name(value_->kind), json_kind_name(kind));
    return *this;
  }
  const std::string& string() const { return require(Kind::string).value_->text; }
  bool boolean() const { return require(Kind::boolean).value_->literal == "true"; }
  std::string string_or_empty(const std::string& key) const {
    const auto field = find(key);
    return field ? field->string() : std::string();
  }
  std::string json() const { return std::string(value_->literal); }

  int pixels() const {
    const std::string literal = json();
    if (!is(Kind::number) || literal.empty() || literal.size() > 6 ||
        literal.find_first_not_of("0123456789") != std::string::npos || literal[0] == '0')
      throw_user("{} is {}, wanted a whole number of pixels from 1 to 999999", path_, literal);
    return std::stoi(literal);
  }

 private:
  const JsonValue* value_;
  std::string path_;
};

constexpr const char* kSkippedFields[] = {
    "model",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "user",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "parallel_tool_calls",
    "modalities",
    "prediction",
    "verbosity",
    "ignore_eos",
    "min_tokens",
    "stop_token_ids",
};
constexpr const char* kUsedFields[] = {"messages",
                                       "tools",
                                       "tool_choice",
                                       "thinking",
                                       "thinking_effort",
                                       "reasoning_effort",
                                       "chat_template_kwargs",
                                       "response_format",
                                       "add_generation_prompt"};

bool listed(std::span<const char* const> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

ContentPart parse_part(const Field& part) {
  if (part.is(Kind::string)) return {part.string(), 0, 0};
  const std::string type = part.require(Kind::object).at("type").string();
  ContentPart parsed;
  if (type == "text") {
    parsed.text = part.at("text").string();
  } else if (type == "image" || type == "image_url") {
    parsed.image_width = part.at("width").pixels();
    parsed.image_height = part.at("height").pixels();
  } else {
    throw_user("{}.type: '{}' is not one of text, image, image_url", part.path(), type);
  }
  return parsed;
}

std::vector<ContentPart> parse_content(const Field& message) {
  std::vector<ContentPart> parts;
  const auto content = message.find("content");
  if (!content) return parts;
  if (content->is(Kind::string)) return {parse_part(*content)};
  if (!content->is(Kind::array))
    throw_user("{} is {}, wanted a string or a list of parts", content->path(), json_kind_name(content->value().kind));
  for (std::size_t part = 0; part < content->value().items.size(); ++part)
    parts.push_back(parse_part(content->item(part)));
  return parts;
}

ToolCall parse_call(const Field& call) {
  call.require(Kind::object);
  if (const std::string type = call.string_or_empty("type"); !type.empty() && type != "function")
    throw_user("{}.type: '{}' is not 'function', the only kind of call", call.path(), type);
  const Field function = call.at("function").require(Kind::object);
  ToolCall parsed;
  parsed.id = call.string_or_empty("id");
  parsed.name = function.at("name").string();
  if (const auto arguments = function.find("arguments")) {
    parsed.arguments_are_text = arguments->is(Kind::string);
    if (parsed.arguments_are_text) parsed.arguments = arguments->string();
    else if (arguments->is(Kind::object)) parsed.arguments = arguments->json();
    else
      throw_user("{} is {}, wanted a JSON string or an object", arguments->path(),
                 json_kind_name(arguments->value().kind));
  }
  return parsed;
}

// A list of tools; an empty one counts as none.
std::string parse_tools(const Field& tools) {
  tools.require(Kind::array);
  for (std::size_t tool = 0; tool < tools.value().items.size(); ++tool) tools.item(tool).require(Kind::object);
  return tools.value().items.empty() ? std::string() : tools.json();
}

Message parse_message(const Field& message) {
  Message parsed;
  parsed.role = message.require(Kind::object).at("role").string();
  if (parsed.role == "developer") parsed.role = "system";
  if (parsed.role != "system" && parsed.role != "user" && parsed.role != "assistant" && parsed.role != "tool")
    throw_user("{}.role: '{}' is not one of system, user, assistant, tool", message.path(), parsed.role);
  parsed.name = message.string_or_empty("name");
  parsed.content = parse_content(message);
  if (parsed.role == "assistant") {
    const bool has_reasoning_content = message.find("reasoning_content").has_value();
    parsed.reasoning = message.string_or_empty(has_reasoning_content ? "reasoning_content" : "reasoning");
    if (const auto calls = message.find("tool_calls"))
      for (std::size_t call = 0; call < calls->require(Kind::array).value().items.size(); ++call)
        parsed.calls.push_back(parse_call(calls->item(call)));
    if (const auto partial = message.find("partial")) parsed.partial = partial->boolean();
  }
  if (parsed.role == "tool") parsed.tool_call_id = message.string_or_empty("tool_call_id");
  if (const auto tools = message.find("tools")) {
    if (parsed.role != "system") throw_user("{}: only a system message declares tools", tools->path());
    parsed.tools_json = parse_tools(*tools);
  }
  return parsed;
}

// thinking: a boolean or {"type": "enabled" | "disabled", "effort": ...}; its effort wins over the flat fields.
void parse_thinking(const Field& root, Conversation& conversation) {
  if (const auto effort = root.find("reasoning_effort")) conversation.effort = effort->string();
  if (const auto effort = root.find("thinking_effort")) conversation.effort = effort->string();
  if (const auto kwargs = root.find("chat_template_kwargs")) {
    kwargs->require(Kind::object);
    if (const auto thinking = kwargs->find("thinking")) conversation.thinking = thinking->boolean();
    if (const auto effort = kwargs->find("thinking_effort")) conversation.effort = effort->string();
  }
  if (const auto thinking = root.find("thinking")) {
    if (thinking->is(Kind::boolean)) {
      conversation.thinking = thinking->boolean();
    } else {
      const std::string type = thinking->require(Kind::object).string_or_empty("type");
      if (type != "" && type != "enabled" && type != "disabled")
        throw_user("{}.type: '{}' is not one of enabled, disabled", thinking->path(), type);
      conversation.thinking = type != "disabled";
      if (const auto effort = thinking->find("effort")) conversation.effort = effort->string();
    }
  }
  if (const auto& effort = conversation.effort; effort && *effort != "low" && *effort != "high" && *effort != "max")
    throw_user("{}thinking_effort: '{}' is not one of low, high, max", root.path(), *effort);
}

ToolChoice parse_tool_choice(const Field& choice) {
  if (choice.is(Kind::object)) return ToolChoice::automatic;  // a named function adds no message
  const std::string& name = choice.string();
  if (name == "auto") return ToolChoice::automatic;
  if (name == "required") return ToolChoice::required;
  if (name == "none") return ToolChoice::none;
  throw_user("{}: '{}' is not one of auto, required, none", choice.path(), name);
}

void parse_response_format(const Field& format, Conversation& conversation) {
  const std::string type = format.require(Kind::object).at("type").string();
  if (type == "text") return;
  if (type != "json_object" && type != "json_schema")
    throw_user("{}.type: '{}' is not one of text, json_object, json_schema", format.path(), type);
  conversation.response_format = type;
  if (type == "json_schema")
    conversation.response_schema_json =
        format.at("json_schema").require(Kind::object).at("schema").require(Kind::object).json();
}

}  // namespace

Conversation parse_conversation(const std::string& json, const std::string& name_for_errors) {
  const JsonValue document = parse_json(json, name_for_errors);
  const Field root(document, name_for_errors + ": ");
  if (!root.is(Kind::object))
    throw_user("{}: is {}, wanted an object with a field messages", name_for_errors, json_kind_name(document.kind));
  for (const auto& [key, value] : document.members)
    if (!listed(kUsedFields, key) && !listed(kSkippedFields, key))
      throw_user("{}: field {} is not known; remove it or fix its spelling", name_for_errors, key);

  Conversation conversation;
  const Field messages = root.at("messages").require(Kind::array);
  if (messages.value().items.empty()) throw_user("{} is empty; give at least one message", messages.path());
  for (std::size_t index = 0; index < messages.value().items.size(); ++index)
    conversation.messages.push_back(parse_message(messages.item(index)));
  if (const auto tools = root.find("tools")) conversation.tools_json = parse_tools(*tools);
  parse_thinking(root, conversation);
  if (const auto choice = root.find("tool_choice")) conversation.tool_choice = parse_tool_choice(*choice);
  if (conversation.tool_choice == ToolChoice::required && conversation.tools_json.empty() &&
      std::none_of(conversation.messages.begin(), conversation.messages.end(),
                   [](const Message& message) { return !message.tools_json.empty(); }))
    throw_user("{}tool_choice: 'required' needs tools, and there are none", root.path());
  if (const auto format = root.find("response_format")) parse_response_format(*format, conversation);
  if (const auto prefix = root.find("add_generation_prompt")) conversation.add_generation_prefix = prefix->boolean();
  return conversation;
}

}  // namespace k3
