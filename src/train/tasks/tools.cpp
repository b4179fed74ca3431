#include "train/tasks/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "train/tasks/tool_list.h"
#include "train/tasks/words.h"

namespace k3::train {

namespace {

using Json = nlohmann::json;  // keys sorted, as the rendered schema has them

constexpr std::array<std::string_view, 12> kRooms = {"kitchen", "bedroom", "bathroom",    "living room",
                                                     "garage",  "hall",    "office",      "garden",
                                                     "cellar",  "attic",   "dining room", "library"};
constexpr std::array<std::string_view, 8> kCurrencies = {"dollars", "euros",  "pounds", "yen",
                                                         "francs",  "rubles", "rupees", "pesos"};
constexpr std::array<std::string_view, 10> kLanguages = {"French",  "German",   "Spanish", "Italian", "Russian",
                                                         "Chinese", "Japanese", "Greek",   "Dutch",   "Polish"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                                   "Friday", "Saturday", "Sunday"};

std::string random_title(Random& random) {
  std::string title(random.pick(kAdjectives));
  const std::int64_t more = random.between(1, 4);
  for (std::int64_t at = 0; at < more; ++at)
    title += fmt::format(" {}", random.chance(0.3) ? random.pick(kAdjectives) : random.pick(kWords));
  return title;
}

Json random_value(Random& random, ValueKind kind) {
  switch (kind) {
    case ValueKind::city: return random.pick(kCities);
    case ValueKind::person: return random.pick(kPeople).name;
    case ValueKind::word: return random.pick(kWords);
    case ValueKind::color: return random.pick(kColors);
    case ValueKind::food: return random.pick(kFood);
    case ValueKind::thing: return random.pick(kThings);
    case ValueKind::title: return random_title(random);
    case ValueKind::time: {
      const bool full = random.chance(0.5);
      const std::int64_t hour = full ? random.between(0, 23) : random.between(1, 12);
      return full ? fmt::format("{}:{:02}", hour, random.between(0, 11) * 5)
                  : fmt::format("{} {}", hour, random.chance(0.5) ? "am" : "pm");
    }
    case ValueKind::minutes: return random.between(2, 60);
    case ValueKind::number: return random.chance(0.7) ? random.between(0, 99) : random.between(100, 9999);
    case ValueKind::money:
      return random.chance(0.3) ? Json(static_cast<double>(random.between(1, 400)) + 0.5)
                                : Json(random.between(1, 999));
    case ValueKind::yes_no: return random.chance(0.5);
    case ValueKind::unit: return random.chance(0.5) ? "celsius" : "fahrenheit";
    case ValueKind::currency: return random.pick(kCurrencies);
    case ValueKind::language: return random.pick(kLanguages);
    case ValueKind::room: return random.pick(kRooms);
    case ValueKind::date: {
      if (random.chance(0.4)) return random.pick(kDays);
      const std::int64_t day = random.between(1, 28);
      return fmt::format("{} {}", day, random.pick(kMonths));
    }
    case ValueKind::code: {
      const char letter = static_cast<char>('a' + random.below(26));
      return fmt::format("{}{}", letter, random.between(100, 9999));
    }
  }
  return {};
}

std::string_view json_type(ValueKind kind) {
  if (kind == ValueKind::yes_no) return "boolean";
  if (kind == ValueKind::minutes || kind == ValueKind::number || kind == ValueKind::money) return "number";
  return "string";
}

// As the user says it: true is "on".
std::string spoken(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string fill_all(std::string_view pattern, const std::vector<std::pair<std::string_view, std::string>>& slots) {
  std::string out(pattern);
  for (const auto& [name, value] : slots) {
    const std::string mark = fmt::format("{{{}}}", name);
    for (std::size_t at = out.find(mark); at != std::string::npos; at = out.find(mark, at + value.size()))
      out.replace(at, mark.size(), value);
  }
  return out;
}

// One declared tool with the names it goes by in this conversation.
struct Declared {
  const Tool* tool = nullptr;
  std::string name;
  std::vector<std::string> parameters;
};

Declared declare(Random& random, const Tool& tool) {
  Declared declared{&tool, std::string(random.pick(tool.names)), {}};
  for (const Parameter& parameter : tool.parameters) declared.parameters.emplace_back(random.pick(parameter.names));
  return declared;
}

Json schema(const Declared& declared, bool described, bool with_required) {
  Json properties = Json::object(), required = Json::array();
  for (std::size_t at = 0; at < declared.parameters.size(); ++at) {
    properties[declared.parameters[at]]["type"] = json_type(declared.tool->parameters[at].kind);
    required.push_back(declared.parameters[at]);
  }
  Json function = {{"name", declared.name}, {"parameters", {{"type", "object"}, {"properties", properties}}}};
  if (with_required) function["parameters"]["required"] = required;
  if (described) function["description"] = declared.tool->purpose;
  return {{"type", "function"}, {"function", function}};
}

// What a conversation is made of: the declared tools, the one that is meant, and its arguments.
struct Request {
  std::vector<Declared> declared;
  std::size_t chosen = 0;
  std::vector<std::pair<std::string_view, std::string>> slots;
  Json arguments = Json::object();  // sorted by name, like the declared properties
  std::string content;              // decides the split
};

Request random_request(Random& random) {
  Request request;
  const std::int64_t count = random.between(1, 4);
  while (static_cast<std::int64_t>(request.declared.size()) < count) {
    Declared next = declare(random, random.pick(tools()));
    const auto clash = [&](const Declared& other) {
      return other.name == next.name || other.tool->purpose == next.tool->purpose ||
             other.tool->names[0] == next.tool->names[0];
    };
    if (std::none_of(request.declared.begin(), request.declared.end(), clash))
      request.declared.push_back(std::move(next));
  }
  request.chosen = static_cast<std::size_t>(random.below(count));
  const Declared& chosen = request.declared[request.chosen];
  request.content = fmt::format("tool {}", chosen.tool->names[0]);
  for (std::size_t at = 0; at < chosen.parameters.size(); ++at) {
    const Parameter& parameter = chosen.tool->parameters[at];
    const Json value = random_value(random, parameter.kind);
    request.arguments[chosen.parameters[at]] = value;
    request.slots.emplace_back(parameter.slot, spoken(value));
    request.content += " " + value.dump();
  }
  return request;
}

}  // namespace

Document tool_conversation(Random& random, Split split) {
  Request wanted = random_request(random);
  while (split_of(wanted.content) != split) wanted = random_request(random);
  const Declared& chosen = wanted.declared[wanted.chosen];
  const Json& arguments = wanted.arguments;
  const auto& slots = wanted.slots;
  const bool described = random.chance(0.7), with_required = random.chance(0.5);
  Json list = Json::array();
  for (const Declared& one : wanted.declared) list.push_back(schema(one, described, with_required));

  Document document;
  Conversation conversation;
  const Effort effort = random_effort(random);
  set_effort(conversation, effort);
  conversation.tools_json = list.dump();
  conversation.add_generation_prefix = false;
  if (split == Split::train && random.chance(0.12)) {  // tools are there, but the question needs none
    const Problem problem = random.chance(0.5)   ? small_talk(random, split)
                            : random.chance(0.5) ? arithmetic_problem(random, split)
                                                 : word_problem(random, split);
    conversation.messages = {user_message(problem.question), assistant_message(problem, effort)};
    document.answer = problem.answer;
    document.conversation = std::move(conversation);
    return document;
  }
  std::string shown;
  for (const auto& [name, value] : arguments.items())
    shown += fmt::format("{}{} = {}", shown.empty() ? "" : ", ", name,
                         value.is_string() ? value.get<std::string>() : value.dump());
  Problem call;
  call.steps = fmt::format("The tool {} fits: {}.", chosen.name, shown);
  call.brief = "";
  call.check = fmt::format("It needs {} argument{}.", arguments.size(), arguments.size() == 1 ? "" : "s");
  Message asks = assistant_message(call, effort);
  asks.content.clear();
  const std::string call_id = fmt::format("{}:0", chosen.name);
  asks.calls.push_back({call_id, chosen.name, arguments.dump(), false});
  std::string request = fill_all(random.pick(chosen.tool->requests), slots);
  if (random.chance(0.1)) request = "Please help me. " + request;
  conversation.messages = {user_message(std::move(request)), std::move(asks)};
  document.answer = chosen.name;
  document.kind = std::string(chosen.tool->names[0]);
  if (split == Split::train && random.chance(0.45)) {
    const Json value = random_value(random, chosen.tool->result_kind);
    Message result;
    result.role = "tool";
    result.tool_call_id = call_id;
    result.content.push_back({Json{{chosen.tool->result_key, value}}.dump(), 0, 0});
    conversation.messages.push_back(std::move(result));
    auto reply_slots = slots;
    // The result wins over a slot of the request that has the same letter, in replies that name it.
    const bool own_r = std::any_of(slots.begin(), slots.end(), [](const auto& slot) { return slot.first == "r"; });
    if (!own_r) reply_slots.emplace_back("r", spoken(value));
    Problem reply;
    reply.reply = fill_all(chosen.tool->reply, reply_slots);
    reply.steps = fmt::format("The tool gave {} = {}.", chosen.tool->result_key, spoken(value));
    conversation.messages.push_back(assistant_message(reply, effort));
  }
  document.conversation = std::move(conversation);
  return document;
}

}  // namespace k3::train
