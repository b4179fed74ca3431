#include "train/tasks/generator.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "train/tasks/passkey.h"
#include "train/tasks/problem.h"
#include "train/tasks/random.h"
#include "train/tasks/tools.h"

namespace k3::train {

namespace {

using Make = Document (*)(Random&, Split, const Filler*);

template <auto kMaker>
Document as_conversation(Random& random, Split split, const Filler*) {
  std::vector<Problem> problems;
  const std::int64_t turns = split == Split::heldout || random.chance(0.7) ? 1 : random.between(2, 3);
  for (std::int64_t turn = 0; turn < turns; ++turn) problems.push_back(kMaker(random, split));
  return conversation_of(problems, random, split == Split::train);
}

template <auto kMaker, std::int64_t kFewest, std::int64_t kMost>
Document as_text(Random& random, Split split, const Filler*) {
  std::vector<Problem> problems;
  const std::int64_t count = random.between(kFewest, kMost);
  for (std::int64_t at = 0; at < count; ++at) problems.push_back(kMaker(random, split));
  return text_of(problems, random);
}

// Turns of every kind in one conversation.
Document mixed_conversation(Random& random, Split split, const Filler*) {
  constexpr std::array kMakers = {two_digit_problem, arithmetic_problem, one_step_word_problem, word_problem,
                                  word_problem,      list_problem,       lookup_problem};
  std::vector<Problem> problems;
  const std::int64_t turns = random.between(2, 5);
  for (std::int64_t turn = 0; turn < turns; ++turn)
    problems.push_back(split == Split::train && random.chance(0.25) ? small_talk(random, split)
                                                                    : random.pick(kMakers)(random, split));
  return conversation_of(problems, random, split == Split::train);
}

template <std::int64_t kFewest, std::int64_t kMost, bool kText>
Document passkeys(Random& random, Split split, const Filler* filler) {
  const std::int64_t keys = random.chance(0.4) ? 1 : random.between(2, 6);
  const std::vector<Problem> problems = passkey_problems(random, split, {random.between(kFewest, kMost), keys}, filler);
  if (!kText) return conversation_of(problems, random, split == Split::train);
  Document document;
  for (const Problem& problem : problems) document.text += fmt::format("{}\n{}\n", problem.question, problem.reply);
  document.answer = problems.back().answer;
  return document;
}

Document tool_calls(Random& random, Split split, const Filler*) { return tool_conversation(random, split); }

struct Entry {
  const char* name;
  const char* summary;
  Make make;
  bool has_train = true, has_heldout = true;
};

// Fewer than 1 of 100 documents exceed the contexts of recipes/nano.toml in tokens of models/nano: 1,024, passkey-long
// 4,096. A sample that does is left out of training. Passkey texts are measured in characters of a book.
constexpr std::array kEntries = {
    Entry{"arithmetic", "conversations: sums, differences and small products of 1 to 3 digits",
          as_conversation<arithmetic_problem>},
    Entry{"arithmetic-2digit", "conversations: sums and differences of two numbers of two digits",
          as_conversation<two_digit_problem>},
    Entry{"arithmetic-text", "raw text: the same, several in a document", as_text<arithmetic_problem, 3, 10>},
    Entry{"wordproblems", "conversations: word problems of one or two steps", as_conversation<word_problem>},
    Entry{"wordproblems-1step", "conversations: word problems of one step", as_conversation<one_step_word_problem>},
    Entry{"wordproblems-newforms", "conversations: word problems in forms that training never has; held-out only",
          as_conversation<new_form_word_problem>, false},
    Entry{"wordproblems-text", "raw text: the same, several in a document", as_text<word_problem, 2, 7>},
    Entry{"lists", "conversations: counting, sorting, picking, reversing, copying", as_conversation<list_problem>},
    Entry{"lists-text", "raw text: the same, several in a document", as_text<list_problem, 3, 10>},
    Entry{"lookup", "conversations: a value out of JSON or a table", as_conversation<lookup_problem>},
    Entry{"lookup-text", "raw text: the same, several in a document", as_text<lookup_problem, 2, 8>},
    Entry{"tools", "conversations: tool calls with typed arguments, results put into words", tool_calls},
    Entry{"smalltalk", "conversations: greetings, identity, short facts", as_conversation<small_talk>, true, false},
    Entry{"mixed", "conversations of 2 to 5 turns of all kinds", mixed_conversation},
    Entry{"passkey-short", "conversations: keys hidden in text, below 1,024 tokens", passkeys<300, 1700, false>},
    Entry{"passkey-long", "conversations: keys hidden in text, below 4,096 tokens", passkeys<2000, 12000, false>},
    Entry{"passkey-text", "raw text: keys hidden in text, below 1,024 tokens", passkeys<300, 2600, true>},
    Entry{"passkey-long-text", "raw text: keys hidden in text, below 4,096 tokens", passkeys<2000, 12000, true>}};

class EntryGenerator : public Generator {
 public:
  EntryGenerator(Make make, std::uint64_t seed, Split split, std::shared_ptr<const Filler> filler)
      : make_(make), random_(seed), split_(split), filler_(std::move(filler)) {}
  Document next() override { return make_(random_, split_, filler_.get()); }

 private:
  Make make_;
  Random random_;
  Split split_;
  std::shared_ptr<const Filler> filler_;
};

}  // namespace

std::unique_ptr<Generator> make_generator(const std::string& name, std::uint64_t seed, Split split,
                                          std::shared_ptr<const Filler> filler) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) {
      if (split == Split::heldout && !entry.has_heldout)
        throw_user("generator {} is a fixed list and has no held-out part; use split train", name);
      if (split == Split::train && !entry.has_train)
        throw_user("generator {} is for evaluation alone; use split heldout", name);
      return std::make_unique<EntryGenerator>(entry.make, seed ^ hash_of(name), split, std::move(filler));
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  throw_user("there is no generator {}; known are {}", name, known);
}

std::vector<GeneratorName> generator_names() {
  std::vector<GeneratorName> names;
  for (const Entry& entry : kEntries) names.push_back({entry.name, entry.summary});
  return names;
}

}  // namespace k3::train
