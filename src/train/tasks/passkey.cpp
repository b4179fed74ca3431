#include "train/tasks/passkey.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "train/tasks/words.h"

namespace k3::train {

namespace {

// say: hides the key {k}; ask: what is asked; {c} {w} tell several keys apart.
struct Wording {
  std::string_view say, ask, reply;
};

constexpr std::array kSingle = {
    Wording{"The pass key is {k}. Remember it. {k} is the pass key.", "What is the pass key?", "The pass key is {k}."},
    Wording{"The pass key is {k}. Remember it. {k} is the pass key.", "What is the pass key? The pass key is",
            "The pass key is {k}."},
    Wording{"The pass key is {k}.", "What is the pass key?", "The pass key is {k}."},
    Wording{"The secret number is {k}.", "What is the secret number?", "The secret number is {k}."},
    Wording{"Remember this number: {k}.", "Which number did I ask you to remember?", "The number is {k}."},
    Wording{"The code for the door is {k}.", "What is the code for the door?", "The code for the door is {k}."},
    Wording{"One of the special magic numbers is {k}.", "What is the special magic number in the text?",
            "The special magic number is {k}."},
    Wording{"Do not forget: the password is {k}.", "What is the password?", "The password is {k}."},
    Wording{"The key to the safe is {k}.", "What is the key to the safe?", "The key to the safe is {k}."}};

constexpr std::array kMany = {
    Wording{"The pass key of {p} is {k}.", "What is the pass key of {p}?", "The pass key of {p} is {k}."},
    Wording{"The code for the {c} {w} is {k}.", "What is the code for the {c} {w}?",
            "The code for the {c} {w} is {k}."},
    Wording{"The secret number of the {c} {w} is {k}.", "What is the secret number of the {c} {w}?",
            "The secret number of the {c} {w} is {k}."},
    Wording{"One of the special magic numbers for {w} is {k}.", "What is the special magic number for {w}?",
            "The special magic number for {w} is {k}."},
    Wording{"{p} lives in {t} and has the number {k}.", "What number does {p} have?", "{p} has the number {k}."}};

constexpr std::array<std::string_view, 7> kIntroductions = {
    "There is an important piece of information hidden in the text. Find it and remember it.",
    "Read the text and find the hidden number.",
    "",
    "",
    "Somewhere in this text there is a key. I will ask you about it at the end.",
    "Read the following text carefully.",
    "Here is a long text."};

constexpr std::array<std::string_view, 8> kPlain = {"The grass is green. The sky is blue. The sun is yellow.",
                                                    "Here we go. There and back again.",
                                                    "The day was long.",
                                                    "Nobody said a word.",
                                                    "It was getting late.",
                                                    "The wind was cold.",
                                                    "They walked on.",
                                                    "It rained all night."};
constexpr std::array<std::string_view, 10> kActs = {"looked at", "walked to", "found",   "liked",  "remembered",
                                                    "painted",   "carried",   "watched", "forgot", "waited near"};

std::string simple_sentence(Random& random) {
  const std::int64_t kind = random.below(6);
  if (kind == 0) return std::string(random.pick(kPlain));
  // Every draw in a statement of its own: the order in which arguments are evaluated is the compiler's choice.
  const std::string_view name = random.pick(kPeople).name, adjective = random.pick(kAdjectives),
                         word = random.pick(kWords);
  if (kind == 1) return fmt::format("{} went to {} with the {} {}.", name, random.pick(kCities), adjective, word);
  if (kind == 2) {
    const std::string_view container = random.pick(kContainers);
    return fmt::format("In the {} there was a {} {}.", container, random.pick(kColors), word);
  }
  if (kind == 3) {
    const std::string_view things = random.pick(kThings);
    return fmt::format("{} had many {} and some {}.", name, things, random.pick(kFood));
  }
  const std::string_view act = random.pick(kActs), other = random.pick(kAdjectives);
  return fmt::format("The {} {} {} the {} {}.", adjective, word, act, other, random.pick(kWords));
}

// About `characters` of filler as pieces between which keys may stand.
std::vector<std::string> filler_pieces(Random& random, std::int64_t characters, const Filler* filler) {
  std::vector<std::string> pieces;
  std::int64_t have = 0;
  if (filler != nullptr && !filler->empty() && random.chance(0.7)) {
    std::size_t at = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(filler->size())));
    for (; have < characters; at = (at + 1) % filler->size()) {
      std::string piece = (*filler)[at].substr(0, static_cast<std::size_t>(characters - have));
      while (!piece.empty() && (static_cast<unsigned char>(piece.back()) & 0xc0) == 0x80)
        piece.pop_back();  // never inside a character
      if (!piece.empty() && static_cast<unsigned char>(piece.back()) >= 0xc0) piece.pop_back();
      have += static_cast<std::int64_t>(piece.size()) + 1;
      if (piece.empty()) break;
      pieces.push_back(std::move(piece));
    }
    return pieces;
  }
  characters += characters / 3;
  const bool repeated = random.chance(0.15);  // the classic form: one sentence over and over
  while (have < characters) {
    pieces.push_back(repeated ? fmt::format("{} {}", kPlain[0], kPlain[1]) : simple_sentence(random));
    have += static_cast<std::int64_t>(pieces.back().size()) + 1;
  }
  return pieces;
}

std::string random_key(Random& random, Split split) {
  for (;;) {
    std::string key;
    const std::int64_t digits = random.between(4, 6);
    for (std::int64_t at = 0; at < digits; ++at)
      key += static_cast<char>((at == 0 ? '1' : '0') + random.below(at == 0 ? 9 : 10));
    if (split_of("passkey " + key) == split) return key;
  }
}

}  // namespace

Filler make_filler(const std::vector<std::string>& books) {
  Filler paragraphs;
  for (const std::string& book : books) {
    std::size_t at = 0;
    while (at < book.size()) {
      std::size_t end = book.find("\n\n", at);
      if (end == std::string::npos) end = book.size();
      if (end - at >= 40 && end - at <= 2000) paragraphs.push_back(book.substr(at, end - at));
      at = end + 2;
    }
  }
  return paragraphs;
}

std::vector<Problem> passkey_problems(Random& random, Split split, const PasskeySize& size, const Filler* filler) {
  const std::string_view introduction = random.pick(kIntroductions);
  const bool single = size.keys == 1 && random.chance(0.7);
  const Wording& wording = single ? random.pick(kSingle) : random.pick(kMany);
  std::vector<Problem> problems;
  std::vector<std::string> said;
  std::int64_t used = static_cast<std::int64_t>(introduction.size());
  while (static_cast<std::int64_t>(problems.size()) < std::max<std::int64_t>(size.keys, 1)) {
    const std::string key = random_key(random, split);
    const std::string_view person = random.pick(kPeople).name, color = random.pick(kColors), word = random.pick(kWords),
                           city = random.pick(kCities);
    const auto filled = [&](std::string_view pattern) {
      return fill(pattern, {{"k", key}, {"p", person}, {"c", color}, {"w", word}, {"t", city}});
    };
    Problem problem;
    problem.question = filled(wording.ask);
    // Every key has a question of its own and differs from the others.
    if (std::any_of(problems.begin(), problems.end(),
                    [&](const Problem& other) { return other.question == problem.question || other.answer == key; }))
      continue;
    said.push_back(filled(wording.say));
    problem.steps = fmt::format("The text says: {}", said.back().substr(0, said.back().find(". Remember")));
    if (!problem.steps.ends_with('.')) problem.steps += '.';
    problem.reply = filled(wording.reply);
    problem.answer = key;
    problem.kind = "passkey";
    used += static_cast<std::int64_t>(said.back().size()) + 1;
    problems.push_back(std::move(problem));
  }
  std::vector<std::string> pieces = filler_pieces(random, std::max<std::int64_t>(size.characters - used, 40), filler);
  for (std::string& sentence : said)
    pieces.insert(pieces.begin() + random.below(static_cast<std::int64_t>(pieces.size()) + 1), std::move(sentence));
  std::string text;
  for (const std::string& piece : pieces) {
    if (!text.empty()) text += ' ';
    text += piece;
  }
  Problem& first = problems.front();
  const std::string ask = first.question;
  first.question.clear();
  if (!introduction.empty()) first.question += fmt::format("{}\n", introduction);
  if (random.chance(0.1)) first.question += ask + "\n";
  first.question += text + "\n" + ask;
  return problems;
}

PasskeyLength passkey_of_length(Random& random, Split split, std::int64_t tokens, const Filler* filler,
                                const Tokenizer& tokenizer, Effort effort) {
  const std::uint64_t seed = random.next();
  double characters_per_token = 5.0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    Random same(seed);
    const auto characters = static_cast<std::int64_t>(characters_per_token * static_cast<double>(tokens));
    const Problem problem = passkey_problems(same, split, {characters, 1}, filler).front();
    PasskeyLength built;
    set_effort(built.conversation, effort);
    built.conversation.messages = {user_message(problem.question), assistant_message(problem, effort)};
    built.conversation.add_generation_prefix = false;
    built.answer = problem.answer;
    const TrainingIds ids = to_training_ids({"", built.conversation, problem.answer}, tokenizer);
    built.tokens = static_cast<std::int64_t>(ids.ids.size());
    if (built.tokens <= tokens) return built;
    characters_per_token *= std::min(0.995, static_cast<double>(tokens) / static_cast<double>(built.tokens));
  }
  throw_user("a passkey problem does not fit into {} tokens; ask for a greater length", tokens);
}

}  // namespace k3::train
