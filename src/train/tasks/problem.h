// One question with its worked answer, before it becomes raw text or a conversation. The think channel follows the
// effort:
//   off   no think channel, the reply alone
//   low   `brief` (often empty), then the reply
//   high  `steps`, then the reply
//   max   `steps` and `check`, then the reply
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/tasks/generator.h"
#include "train/tasks/random.h"

namespace k3::train {

struct Problem {
  std::string question;
  std::string brief, steps, check;
  std::string reply;   // what the assistant says
  std::string answer;  // the value in it
  std::string kind;    // "sum", "difference", "compare", ...
};

// Makes problems of one split only.
using ProblemMaker = std::function<Problem(Random&, Split)>;

enum class Effort { off, low, high, max };
Effort random_effort(Random& random);
void set_effort(Conversation& conversation, Effort effort);

// One question in twenty as people type in a hurry: small letters only, or no mark at the end.
std::string typed(Random& random, std::string question);

Message user_message(std::string text);
Message assistant_message(const Problem& problem, Effort effort);
void maybe_add_system_message(Conversation& conversation, Random& random);

// A conversation of one problem, or of several in turn.
Document conversation_of(const std::vector<Problem>& problems, Random& random, bool allow_system);
// Several problems under each other in one of a few layouts.
Document text_of(const std::vector<Problem>& problems, Random& random);

// The makers (one file each).
Problem arithmetic_problem(Random& random, Split split);  // 1 to 3 digits, sums, differences, small products
Problem two_digit_problem(Random& random, Split split);   // sums and differences of two numbers of two digits
Problem word_problem(Random& random, Split split);        // one or two steps
Problem one_step_word_problem(Random& random, Split split);
Problem new_form_word_problem(Random& random, Split split);  // story forms that training never has; held-out only
Problem list_problem(Random& random, Split split);    // counting, sorting, copying, picking
Problem lookup_problem(Random& random, Split split);  // a value out of JSON or a table
Problem small_talk(Random& random, Split split);      // greetings, identity, short facts; train only

}  // namespace k3::train
