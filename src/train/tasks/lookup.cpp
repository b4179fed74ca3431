// Reading one value out of a JSON object, a list of JSON records, or a small table (with bars or commas).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "train/tasks/problem.h"
#include "train/tasks/words.h"

namespace k3::train {

namespace {

struct Field {
  std::string_view name;
  enum class Kind { number, city, color, food, person, word, yes_no, code } kind;
};

constexpr std::array kFields = {Field{"age", Field::Kind::number},         Field{"city", Field::Kind::city},
                                Field{"color", Field::Kind::color},        Field{"price", Field::Kind::number},
                                Field{"count", Field::Kind::number},       Field{"owner", Field::Kind::person},
                                Field{"fruit", Field::Kind::food},         Field{"active", Field::Kind::yes_no},
                                Field{"code", Field::Kind::code},          Field{"weight", Field::Kind::number},
                                Field{"height", Field::Kind::number},      Field{"title", Field::Kind::word},
                                Field{"author", Field::Kind::person},      Field{"year", Field::Kind::number},
                                Field{"score", Field::Kind::number},       Field{"level", Field::Kind::number},
                                Field{"country", Field::Kind::city},       Field{"animal", Field::Kind::word},
                                Field{"status", Field::Kind::word},        Field{"id", Field::Kind::code},
                                Field{"size", Field::Kind::number},        Field{"stock", Field::Kind::number},
                                Field{"open", Field::Kind::yes_no},        Field{"phone", Field::Kind::code},
                                Field{"room", Field::Kind::number},        Field{"teacher", Field::Kind::person},
                                Field{"temperature", Field::Kind::number}, Field{"password", Field::Kind::word}};

std::string random_value(Random& random, Field::Kind kind) {
  switch (kind) {
    case Field::Kind::number:
      return fmt::to_string(random.chance(0.7) ? random.between(1, 99) : random.between(100, 9999));
    case Field::Kind::city: return std::string(random.pick(kCities));
    case Field::Kind::color: return std::string(random.pick(kColors));
    case Field::Kind::food: return std::string(random.pick(kFood));
    case Field::Kind::person: return std::string(random.pick(kPeople).name);
    case Field::Kind::word: return std::string(random.pick(kWords));
    case Field::Kind::yes_no: return random.chance(0.5) ? "true" : "false";
    case Field::Kind::code: return fmt::format("{:05}", random.between(0, 99999));
  }
  return {};
}

bool quoted(Field::Kind kind) { return kind != Field::Kind::number && kind != Field::Kind::yes_no; }

std::vector<Field> random_fields(Random& random, std::int64_t count) {
  std::vector<Field> fields(kFields.begin(), kFields.end());
  random.shuffle(fields);
  fields.resize(static_cast<std::size_t>(count));
  return fields;
}

std::string json_object(const std::vector<Field>& fields, const std::vector<std::string>& values, bool spaced,
                        std::string_view name) {
  std::string out = "{";
  const std::string_view comma = spaced ? ", " : ",", colon = spaced ? ": " : ":";
  if (!name.empty()) out += fmt::format("\"name\"{}\"{}\"{}", colon, name, comma);
  for (std::size_t at = 0; at < fields.size(); ++at) {
    const char* quote = quoted(fields[at].kind) ? "\"" : "";
    out += fmt::format("{}\"{}\"{}{}{}{}", at ? comma : "", fields[at].name, colon, quote, values[at], quote);
  }
  return out + "}";
}

Problem one_object(Random& random) {
  constexpr std::array<std::string_view, 7> kAsk = {
      "What is the {f} in this JSON? {j}", "{j}\nWhat is the value of {f}?", "Read the {f} from {j}.",
      "Given {j}, what is \"{f}\"?",       "{j}\nWhat is the {f}?",          "Here is a record: {j}\nTell me the {f}.",
      "What does {f} equal in {j}?"};
  const auto fields = random_fields(random, random.between(1, 8));
  std::vector<std::string> values;
  for (const Field& field : fields) values.push_back(random_value(random, field.kind));
  const std::size_t asked = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(fields.size())));
  const std::string_view name = fields[asked].name;
  const std::string object = json_object(fields, values, random.chance(0.6), "");
  Problem problem;
  problem.question = fill(random.pick(kAsk), {{"f", name}, {"j", object}});
  problem.steps = fmt::format("The field {} holds {}.", name, values[asked]);
  problem.answer = values[asked];
  constexpr std::array<std::string_view, 3> kReply = {"The {f} is {v}.", "{v}", "The {f} is {v}."};
  problem.reply = fill(random.pick(kReply), {{"f", name}, {"v", values[asked]}});
  return problem;
}

Problem many_records(Random& random) {
  const std::int64_t rows = random.between(2, 6);
  const auto fields = random_fields(random, random.between(1, 4));
  std::vector<std::string_view> names;
  while (static_cast<std::int64_t>(names.size()) < rows) {
    const std::string_view name = random.pick(kPeople).name;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  const std::size_t asked_row = static_cast<std::size_t>(random.below(rows));
  const std::size_t asked = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(fields.size())));
  const std::int64_t layout = random.below(3);
  std::string table, value;
  if (layout == 1) {
    table = "| name |";
    for (const Field& field : fields) table += fmt::format(" {} |", field.name);
    table += "\n|---|";
    for (std::size_t at = 0; at < fields.size(); ++at) table += "---|";
  } else if (layout == 2) {
    table = "name";
    for (const Field& field : fields) table += fmt::format(",{}", field.name);
  } else {
    table = "[";
  }
  for (std::size_t row = 0; row < names.size(); ++row) {
    std::vector<std::string> values;
    for (const Field& field : fields) values.push_back(random_value(random, field.kind));
    if (row == asked_row) value = values[asked];
    if (layout == 0) table += fmt::format("{}{}", row ? ", " : "", json_object(fields, values, true, names[row]));
    if (layout == 1) table += fmt::format("\n| {} |", names[row]);
    if (layout == 2) table += fmt::format("\n{}", names[row]);
    for (const std::string& cell : values) {
      if (layout == 1) table += fmt::format(" {} |", cell);
      if (layout == 2) table += fmt::format(",{}", cell);
    }
  }
  if (layout == 0) table += "]";
  constexpr std::array<std::string_view, 6> kAsk = {"{t}\nWhat is the {f} of {n}?",
                                                    "{t}\n\nWhat is {n}'s {f}?",
                                                    "Look at this table:\n{t}\nWhat is the {f} for {n}?",
                                                    "What is the {f} of {n}?\n{t}",
                                                    "Here is some data:\n{t}\nTell me the {f} of {n}.",
                                                    "{t}\nFind the {f} of {n}."};
  Problem problem;
  problem.question = fill(random.pick(kAsk), {{"t", table}, {"f", fields[asked].name}, {"n", names[asked_row]}});
  problem.steps = fmt::format("Find the row of {}. Its {} is {}.", names[asked_row], fields[asked].name, value);
  problem.answer = value;
  constexpr std::array<std::string_view, 3> kReply = {"The {f} of {n} is {v}.", "{n}'s {f} is {v}.", "{v}"};
  problem.reply = fill(random.pick(kReply), {{"f", fields[asked].name}, {"n", names[asked_row]}, {"v", value}});
  return problem;
}

}  // namespace

Problem lookup_problem(Random& random, Split split) {
  for (;;) {
    Problem problem = random.chance(0.5) ? one_object(random) : many_records(random);
    if (split_of("lookup " + problem.question) == split) return problem;
  }
}

}  // namespace k3::train
