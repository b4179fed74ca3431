// Endless streams of generated training documents: sums with written-out steps, word problems, lists, passkeys in long
// text, tool calls, look-ups in JSON and tables, small talk. Seeded and deterministic: the same (name, seed, split,
// filler) gives the same documents, whatever the compiler. Train and held-out problems never meet: a problem belongs to
// the split that the hash of its content says (1 in 10 is held out).
//
//   auto generator = make_generator("arithmetic", 7, Split::train);
//   TrainingIds document = to_training_ids(generator->next(), tokenizer);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/chat.h"
#include "text/tokenizer.h"

namespace k3::train {

enum class Split { train, heldout };

struct Document {
  std::string text;                          // raw text, when there is no conversation
  std::optional<Conversation> conversation;  // complete: it ends with the assistant's answer
  std::string answer;     // the value asked for by the last question ("42", "58213"); empty where there is none
  std::string kind = {};  // of the last question: sum, difference, the kind of story, the tool; may be empty
};

class Generator {
 public:
  virtual ~Generator() = default;
  virtual Document next() = 0;
};

// Prose to hide passkeys in, cut into paragraphs. Empty: simple sentences made by the generator stand in.
using Filler = std::vector<std::string>;
Filler make_filler(const std::vector<std::string>& books);

// UserError for a name that is not in generator_names() or a split it does not have.
std::unique_ptr<Generator> make_generator(const std::string& name, std::uint64_t seed, Split split,
                                          std::shared_ptr<const Filler> filler = nullptr);

struct GeneratorName {
  std::string name, summary;
};
std::vector<GeneratorName> generator_names();

// A document as the trainer sees it. `loss[i]` says whether predicting ids[i] (from what stands before it) counts:
// everything in raw text, which ends with [EOS]; in conversations only what the model itself must write, that is each
// assistant message after its generation prefix, up to and including <|end_of_msg|>.
struct TrainingIds {
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> loss;  // [ids] 0 or 1
};
TrainingIds to_training_ids(const Document& document, const Tokenizer& tokenizer);

}  // namespace k3::train
