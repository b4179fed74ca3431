#include "train/tasks/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "train/tasks/words.h"

namespace k3::train {

namespace {

using Json = nlohmann::json;  // keys sorted, as the rendered schema has them
using Names = std::vector<std::string_view>;

enum class Kind { city, person, word, color, food, thing, title, time, minutes, number, money, yes_no, unit, currency, language, room, date, code };

struct Parameter {
  std::string_view slot;  // in the patterns
  Kind kind;
  Names names;
};

struct Tool {
  Names names;
  std::string_view purpose;
  std::vector<Parameter> parameters;
  Names requests;              // what a user says; every slot of a parameter in use stands in it
  std::string_view result_key;  // of the JSON that comes back
  Kind result_kind;
  std::string_view reply;      // {r} the result
};

// A function-local constant: built once, on first use.
const std::vector<Tool>& tools() {
  static const std::vector<Tool> kTools = {
      {{"get_weather", "weather", "weather_lookup", "check_weather", "current_weather"}, "Get the weather of a city", {{"c", Kind::city, {"city", "location", "place", "town"}}},
       {"What is the weather in {c}?", "How is the weather in {c} today?", "Is it cold in {c}?", "Tell me the weather for {c}.", "weather in {c}", "Please check the weather in {c}."}, "temperature", Kind::number, "It is {r} degrees in {c}."},
      {{"get_weather", "forecast", "weather_report", "get_temperature"}, "Get the temperature of a city in a unit", {{"c", Kind::city, {"city", "location", "place"}}, {"u", Kind::unit, {"unit", "units", "scale"}}},
       {"What is the temperature in {c} in {u}?", "How warm is it in {c}? Use {u}.", "Give me the weather in {c} in {u}.", "Temperature for {c}, {u} please."}, "temperature", Kind::number, "It is {r} degrees {u} in {c}."},
      {{"set_timer", "timer", "start_timer", "create_timer"}, "Start a timer", {{"m", Kind::minutes, {"minutes", "duration", "length"}}},
       {"Set a timer for {m} minutes.", "Start a {m} minute timer.", "Wake me in {m} minutes.", "I need a timer of {m} minutes.", "timer {m} minutes"}, "timer_id", Kind::code, "The timer for {m} minutes is set."},
      {{"set_alarm", "alarm", "create_alarm", "wake_up"}, "Set an alarm", {{"t", Kind::time, {"time", "at", "when"}}},
       {"Set an alarm for {t}.", "Wake me up at {t}.", "I need an alarm at {t}.", "Please set the alarm to {t}."}, "alarm_id", Kind::code, "Your alarm is set for {t}."},
      {{"send_message", "message", "send_text", "text_person"}, "Send a message to a person", {{"p", Kind::person, {"to", "recipient", "person", "name"}}, {"x", Kind::title, {"text", "message", "body", "content"}}},
       {"Send a message to {p}: {x}", "Text {p} this: {x}", "Tell {p} the following: {x}", "Write to {p}: {x}"}, "message_id", Kind::code, "I sent the message to {p}."},
      {{"call_person", "phone_call", "call", "dial"}, "Call a person on the phone", {{"p", Kind::person, {"name", "person", "contact", "who"}}},
       {"Call {p}.", "Please phone {p}.", "I want to talk to {p} on the phone.", "Give {p} a call."}, "call_id", Kind::code, "I am calling {p}."},
      {{"set_light", "light", "switch_light", "control_light"}, "Switch the light of a room on or off", {{"o", Kind::yes_no, {"on", "state", "enabled"}}, {"r", Kind::room, {"room", "place", "where"}}},
       {"Set the light in the {r} to {o}.", "Turn the {r} light {o}.", "Light in the {r}: {o}", "Please switch the light in the {r} {o}."}, "switch_id", Kind::code, "The light in the {r} is {o}."},
      {{"add", "add_numbers", "sum", "plus"}, "Add two numbers", {{"a", Kind::number, {"a", "x", "first", "left"}}, {"b", Kind::number, {"b", "y", "second", "other"}}},
       {"Use the tool to add {a} and {b}.", "What is {a} plus {b}? Use a tool.", "Add {a} and {b} with the tool.", "Compute {a} + {b} with a tool."}, "result", Kind::number, "The result is {r}."},
      {{"multiply", "product", "times", "multiply_numbers"}, "Multiply two numbers", {{"a", Kind::number, {"a", "x", "first", "left"}}, {"b", Kind::number, {"b", "y", "second", "other"}}},
       {"Use the tool to multiply {a} by {b}.", "Multiply {a} and {b} with the tool.", "What is {a} times {b}? Use a tool."}, "result", Kind::number, "The result is {r}."},
      {{"convert_currency", "exchange", "currency", "convert_money"}, "Convert money into another currency", {{"n", Kind::money, {"amount", "value", "sum"}}, {"f", Kind::currency, {"from", "source", "from_currency"}}, {"g", Kind::currency, {"to", "target", "to_currency"}}},
       {"Convert {n} {f} to {g}.", "How much is {n} {f} in {g}?", "Change {n} {f} into {g}.", "I have {n} {f}. How many {g} is that?"}, "amount", Kind::money, "That is {r} {g}."},
      {{"search_books", "find_book", "book_search", "library"}, "Search books about a topic", {{"w", Kind::word, {"topic", "query", "subject", "about"}}},
       {"Find books about {w}.", "Search for books on {w}.", "I want to read about {w}.", "Which books do you have about {w}?"}, "count", Kind::number, "I found {r} books about {w}."},
      {{"play_music", "play", "music_player", "play_song"}, "Play a song", {{"x", Kind::title, {"title", "song", "track", "name"}}},
       {"Play the song {x}.", "Put on {x}.", "I want to hear {x}.", "Play {x} please."}, "track_id", Kind::code, "I am playing {x}."},
      {{"create_event", "add_event", "calendar", "new_event"}, "Put an event into the calendar", {{"d", Kind::date, {"date", "day", "when"}}, {"x", Kind::title, {"title", "event", "name"}}},
       {"Create an event {x} on {d}.", "Put {x} into my calendar on {d}.", "Add {x} to the calendar for {d}.", "Schedule {x} on {d}."}, "event_id", Kind::code, "I added {x} on {d}."},
      {{"translate", "translate_text", "translator", "translate_word"}, "Translate a word into a language", {{"l", Kind::language, {"language", "target", "to"}}, {"w", Kind::word, {"text", "word", "input"}}},
       {"Translate {w} into {l}.", "How do you say {w} in {l}?", "What is {w} in {l}?", "Give me the {l} word for {w}."}, "id", Kind::code, "The translation has the number {r}."},
      {{"buy", "order_item", "order", "purchase"}, "Order an item from the shop", {{"i", Kind::thing, {"item", "product", "what"}}, {"n", Kind::minutes, {"quantity", "count", "number"}}},
       {"Order {n} {i}.", "Buy {n} {i} for me.", "I want to buy {n} {i}.", "Please get {n} {i} from the shop."}, "order_id", Kind::code, "I ordered {n} {i}. The order number is {r}."},
      {{"get_stock", "stock", "inventory", "check_stock"}, "How many pieces of an item are in stock", {{"i", Kind::food, {"item", "product", "name"}}},
       {"How many {i} are in stock?", "Check the stock of {i}.", "Do we have {i}?", "Look up how many {i} are left."}, "count", Kind::number, "There are {r} {i} in stock."},
      {{"paint", "draw_shape", "draw", "set_color"}, "Draw a thing in a color", {{"k", Kind::color, {"color", "paint", "shade"}}, {"w", Kind::word, {"object", "thing", "what"}}},
       {"Draw a {k} {w}.", "Paint a {w} in {k}.", "Make a picture of a {k} {w}.", "I want a {k} {w}."}, "picture_id", Kind::code, "The {k} {w} is drawn."},
      {{"book_table", "reserve_table", "reservation", "restaurant"}, "Reserve a table in a restaurant", {{"n", Kind::minutes, {"people", "guests", "seats"}}, {"t", Kind::time, {"time", "at", "hour"}}},
       {"Reserve a table for {n} people at {t}.", "Book a table at {t} for {n}.", "I need a table for {n} at {t}."}, "table", Kind::number, "Your table for {n} at {t} is number {r}."},
      {{"book_flight", "flight", "find_flight", "search_flight"}, "Find a flight between two cities", {{"c", Kind::city, {"from", "origin", "start"}}, {"g", Kind::city, {"to", "destination", "goal"}}},
       {"Find a flight from {c} to {g}.", "I want to fly from {c} to {g}.", "Book a flight from {c} to {g}.", "Is there a flight from {c} to {g}?"}, "flight", Kind::code, "Flight {r} goes from {c} to {g}."},
      {{"set_temperature", "thermostat", "heating", "set_heating"}, "Set the temperature of a room", {{"n", Kind::minutes, {"degrees", "temperature", "value"}}, {"r", Kind::room, {"room", "place", "where"}}},
       {"Set the {r} to {n} degrees.", "Make the {r} {n} degrees warm.", "Heat the {r} to {n} degrees.", "Temperature in the {r}: {n}"}, "id", Kind::code, "The {r} is set to {n} degrees."},
      {{"remind", "reminder", "create_reminder", "remind_me"}, "Remind the user of something", {{"t", Kind::time, {"time", "at", "when"}}, {"x", Kind::title, {"text", "about", "note"}}},
       {"Remind me at {t}: {x}", "At {t} remind me of {x}.", "Create a reminder for {t}: {x}"}, "reminder_id", Kind::code, "I will remind you at {t}."},
      {{"get_population", "population", "city_size", "count_people"}, "How many people live in a city", {{"c", Kind::city, {"city", "place", "name"}}},
       {"How many people live in {c}?", "What is the population of {c}?", "How big is {c}?", "Look up the population of {c}."}, "population", Kind::number, "{r} people live in {c}."},
      {{"lock_door", "door", "set_lock", "lock"}, "Lock or unlock a door", {{"r", Kind::room, {"door", "room", "where"}}, {"o", Kind::yes_no, {"locked", "lock", "closed"}}},
       {"Set the lock of the {r} to {o}.", "Door of the {r}, lock {o}.", "Put the {r} lock {o}."}, "lock_id", Kind::code, "The lock of the {r} is {o}."},
      {{"find_contact", "contact", "lookup_phone", "phone_book"}, "Find the phone number of a person", {{"p", Kind::person, {"name", "person", "who"}}},
       {"What is the phone number of {p}?", "Find the number of {p}.", "Look up {p} in the phone book.", "I need {p}'s phone number."}, "phone", Kind::code, "The phone number of {p} is {r}."}};
  return kTools;
}

constexpr std::array<std::string_view, 12> kRooms = {"kitchen", "bedroom", "bathroom", "living room", "garage", "hall", "office", "garden", "cellar", "attic", "dining room", "library"};
constexpr std::array<std::string_view, 8> kCurrencies = {"dollars", "euros", "pounds", "yen", "francs", "rubles", "rupees", "pesos"};
constexpr std::array<std::string_view, 10> kLanguages = {"French", "German", "Spanish", "Italian", "Russian", "Chinese", "Japanese", "Greek", "Dutch", "Polish"};
constexpr std::array<std::string_view, 12> kMonths = {"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};

std::string random_title(Random& random) {
  std::string title(random.pick(kAdjectives));
  const std::int64_t more = random.between(1, 4);
  for (std::int64_t at = 0; at < more; ++at) title += fmt::format(" {}", random.chance(0.3) ? random.pick(kAdjectives) : random.pick(kWords));
  return title;
}

Json random_value(Random& random, Kind kind) {
  switch (kind) {
    case Kind::city: return random.pick(kCities);
    case Kind::person: return random.pick(kPeople).name;
    case Kind::word: return random.pick(kWords);
    case Kind::color: return random.pick(kColors);
    case Kind::food: return random.pick(kFood);
    case Kind::thing: return random.pick(kThings);
    case Kind::title: return random_title(random);
    case Kind::time: return random.chance(0.5) ? fmt::format("{}:{:02}", random.between(0, 23), random.between(0, 11) * 5) : fmt::format("{} {}", random.between(1, 12), random.chance(0.5) ? "am" : "pm");
    case Kind::minutes: return random.between(2, 60);
    case Kind::number: return random.chance(0.7) ? random.between(0, 99) : random.between(100, 9999);
    case Kind::money: return random.chance(0.3) ? Json(static_cast<double>(random.between(1, 400)) + 0.5) : Json(random.between(1, 999));
    case Kind::yes_no: return random.chance(0.5);
    case Kind::unit: return random.chance(0.5) ? "celsius" : "fahrenheit";
    case Kind::currency: return random.pick(kCurrencies);
    case Kind::language: return random.pick(kLanguages);
    case Kind::room: return random.pick(kRooms);
    case Kind::date: return random.chance(0.4) ? std::string(random.pick(kDays)) : fmt::format("{} {}", random.between(1, 28), random.pick(kMonths));
    case Kind::code: return fmt::format("{}{}", static_cast<char>('a' + random.below(26)), random.between(100, 9999));
  }
  return {};
}

std::string_view json_type(Kind kind) {
  if (kind == Kind::yes_no) return "boolean";
  if (kind == Kind::minutes || kind == Kind::number || kind == Kind::money) return "number";
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
    for (std::size_t at = out.find(mark); at != std::string::npos; at = out.find(mark, at + value.size())) out.replace(at, mark.size(), value);
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
    const auto clash = [&](const Declared& other) { return other.name == next.name || other.tool->purpose == next.tool->purpose || other.tool->names[0] == next.tool->names[0]; };
    if (std::none_of(request.declared.begin(), request.declared.end(), clash)) request.declared.push_back(std::move(next));
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
    const Problem problem = random.chance(0.5) ? small_talk(random, split) : random.chance(0.5) ? arithmetic_problem(random, split) : word_problem(random, split);
    conversation.messages = {user_message(problem.question), assistant_message(problem, effort)};
    document.answer = problem.answer;
    document.conversation = std::move(conversation);
    return document;
  }
  std::string shown;
  for (const auto& [name, value] : arguments.items()) shown += fmt::format("{}{} = {}", shown.empty() ? "" : ", ", name, value.is_string() ? value.get<std::string>() : value.dump());
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
