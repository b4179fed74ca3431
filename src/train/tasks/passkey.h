// A key hidden in long text, asked for at the end. Filler is prose from books (paragraphs) or simple sentences made
// here.
#pragma once

#include <cstdint>

#include "train/tasks/problem.h"

namespace k3::train {

struct PasskeySize {
  std::int64_t characters =
      3000;               // of book text; simple sentences, which have more characters a token, get a third more
  std::int64_t keys = 1;  // hidden keys
};

// One problem a key, in random order: the first holds the text and a question, the others only ask.
std::vector<Problem> passkey_problems(Random& random, Split split, const PasskeySize& size, const Filler* filler);

// One key, one question, with fewer and fewer characters until the conversation has at most `tokens` tokens, the answer
// included.
struct PasskeyLength {
  Conversation conversation;  // complete
  std::string answer;
  std::int64_t tokens = 0;
};
PasskeyLength passkey_of_length(Random& random, Split split, std::int64_t tokens, const Filler* filler,
                                const Tokenizer& tokenizer, Effort effort);

}  // namespace k3::train
