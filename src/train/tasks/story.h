// Stories of word problems are written in a small pattern language, so that a few dozen frames with large vocabularies
// give many wordings in correct English:
//   (x|y|)           one of the alternatives, nested as needed
//   <left> <gain b>  an alternative of the rule of that name (story_rules.cpp); '#' in it is the number {b}
//   {A} {B}          who it is about: "a baker" first, "the baker" later; {A.he} {A.him} {A.his} {A.s} ("the baker's");
//                    {A.he} is now and then the name, and always where the pronoun would be unclear
//   {they} {their}   both of them: "we" where one is the asker
//   {a} {b} {c}      the numbers; {s} the result of the first step, {r} of the last
//   {things} ...     words of the story (StoryWords); {rthings} {are} agree with {r}
//   [buy|buys|bought]  agrees with who was named last and with the tense; [>do|does|did] with who comes next;
//                    two forms are present tense whatever the story has; [=get|got] follows the tense alone;
//                    [be] [>be] is am, is, are, was, were; [am] and [was] have their tense
//   ~                a sentence that has nothing to do with the question may stand here
// Choices are drawn from left to right; sentences begin with a capital letter.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "train/tasks/random.h"

namespace k3::train {

struct Actor {
  std::string first, later;        // "a baker", "the baker"
  std::string he, him, his, s;     // he, him, his, the baker's
  std::string reply, reply_s;      // how the answer names him: "the baker", "you"; "the baker's", "your"
  std::string relation = {};       // "brother": named after {A} as "his brother"
  bool base = false;               // verbs without s: I, you, we, they
  bool one = true;                 // false: we, they
};

// The words of one story.
struct StoryWords {
  Actor a, b;
  bool past = false, food = false, pronouns = true;
  std::map<std::string, std::string, std::less<>> slots;  // things, thing, place, a, b, ...; may hold patterns
};

enum class Goods { any, food, things, trade };

StoryWords random_words(Random& random, Goods goods);

// Writes the parts of one story, which share what was mentioned before.
class StoryWriter {
 public:
  StoryWriter(Random& random, StoryWords& words) : random_(random), words_(words) {}
  std::string write(std::string_view pattern);  // of the story and its question
  std::string reply(std::string_view pattern);  // what is said to the asker: "you" for "I"
  bool fixed_names() const { return words_.a.first == words_.a.later; }

 private:
  std::string resolve(std::string_view pattern);
  std::string spell(std::string_view flat);
  std::string slot(std::string_view name);
  std::string verb(std::string_view forms, std::string_view rest);
  std::string mention(Actor& actor, bool& mentioned, std::string_view form);

  Random& random_;
  StoryWords& words_;
  bool a_mentioned_ = false, b_mentioned_ = false, replies_ = false;
  const Actor* last_ = nullptr;
};

// An alternative of a rule; food opens those that are only for food.
std::string_view rule_alternative(Random& random, std::string_view name, bool food);

}  // namespace k3::train
