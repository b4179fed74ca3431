// The tools that generated conversations declare: what each may be called, its parameters, how a user asks for it,
// what comes back.
#pragma once

#include <string_view>
#include <vector>

namespace k3::train {

using Names = std::vector<std::string_view>;

enum class ValueKind {
  city,
  person,
  word,
  color,
  food,
  thing,
  title,
  time,
  minutes,
  number,
  money,
  yes_no,
  unit,
  currency,
  language,
  room,
  date,
  code
};

struct Parameter {
  std::string_view slot;  // in the patterns
  ValueKind kind;
  Names names;
};

struct Tool {
  Names names;
  std::string_view purpose;
  std::vector<Parameter> parameters;
  Names requests;               // what a user says; every slot of a parameter in use stands in it
  std::string_view result_key;  // of the JSON that comes back
  ValueKind result_kind;
  std::string_view reply;  // {r} the result
};

const std::vector<Tool>& tools();

}  // namespace k3::train
