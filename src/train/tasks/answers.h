// What a model answered, taken apart and compared with what was wanted. Strict: only the response channel counts for
// answers and only the tools channel for calls; a reply that did not end with <|end_of_msg|> is wrong whatever it says.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat.h"
#include "text/tokenizer.h"

namespace k3::train {

struct Reply {
  std::string reasoning, content;
  std::vector<ToolCall> calls;  // arguments: a JSON object
  bool complete = false;        // ended with <|end_of_msg|>
};
Reply parse_reply(std::span<const std::int64_t> ids, const Tokenizer& tokenizer, bool thinking);

// The last whole number in the text, "-8" and "1,204" included, as digits without commas; nothing when there is none. A
// minus counts as a sign only where no number or letter stands before it: "17 - 8" ends in 8. "42.5" is not a whole
// number.
std::optional<std::string> last_number(std::string_view text);

// The answer is right when its last number equals `wanted`.
bool right_number(const Reply& reply, const std::string& wanted);
// The key stands in the response as a number of its own, and no other number of as many digits does.
bool right_key(const Reply& reply, const std::string& wanted);
// Exactly one call, the same name, the same arguments with the same JSON types and values; numbers compare by value.
bool right_call(const Reply& reply, const ToolCall& wanted);

}  // namespace k3::train
