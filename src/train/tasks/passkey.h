// A key hidden in long text, asked for at the end. Filler is prose from books (paragraphs) or simple sentences made here.
#pragma once

#include <cstdint>

#include "train/tasks/problem.h"

namespace k3::train {

struct PasskeySize {
  std::int64_t characters = 3000;  // of the whole question, about
  std::int64_t keys = 1;           // hidden keys; one of them is asked for
};

Problem passkey_problem(Random& random, Split split, const PasskeySize& size, const Filler* filler);

// The same problem with fewer and fewer characters until the conversation has at most `tokens` tokens, the answer included.
struct PasskeyLength {
  Conversation conversation;  // complete
  std::string answer;
  std::int64_t tokens = 0;
};
PasskeyLength passkey_of_length(Random& random, Split split, std::int64_t tokens, const Filler* filler, const Tokenizer& tokenizer, Effort effort);

}  // namespace k3::train
