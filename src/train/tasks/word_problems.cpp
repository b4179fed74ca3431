// Word problems: who (a named person, "I", a friend), tense, items, verbs and question forms vary independently, so
// that the arithmetic inside is what has to be learnt. One step: gain, loss, together, comparison, more than, fewer
// than, container, missing part, money, age, bus, pages, groups. Two steps: gain and loss after each other, gain twice,
// groups and a loss.
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "train/tasks/arithmetic.h"
#include "train/tasks/problem.h"
#include "train/tasks/words.h"

namespace k3::train {

namespace {

struct Verb {
  std::string_view base, third, past, after;  // "buy", "buys", "bought", what may stand after the number of items
  bool food_only = false;
};

constexpr std::array kGains = {Verb{"buy", "buys", "bought", " more"},
                               Verb{"find", "finds", "found", " more"},
                               Verb{"get", "gets", "got", " more"},
                               Verb{"get", "gets", "got", " from {M}"},
                               Verb{"receive", "receives", "received", " from {M}"},
                               Verb{"collect", "collects", "collected", " more"},
                               Verb{"pick up", "picks up", "picked up", ""},
                               Verb{"add", "adds", "added", ""},
                               Verb{"win", "wins", "won", " in a game"},
                               Verb{"borrow", "borrows", "borrowed", " from {M}"},
                               Verb{"make", "makes", "made", " more"},
                               Verb{"buy", "buys", "bought", " at the store"},
                               Verb{"take", "takes", "took", " from {M}"},
                               Verb{"gain", "gains", "gained", ""},
                               Verb{"order", "orders", "ordered", " more"}};

constexpr std::array kLosses = {Verb{"give", "gives", "gave", " to {M}"},
                                Verb{"lose", "loses", "lost", ""},
                                Verb{"sell", "sells", "sold", ""},
                                Verb{"give away", "gives away", "gave away", ""},
                                Verb{"use", "uses", "used", ""},
                                Verb{"drop", "drops", "dropped", ""},
                                Verb{"eat", "eats", "ate", "", true},
                                Verb{"eat", "eats", "ate", " for lunch", true},
                                Verb{"throw away", "throws away", "threw away", ""},
                                Verb{"share", "shares", "shared", " with {M}"},
                                Verb{"leave", "leaves", "left", " at home"},
                                Verb{"hand", "hands", "handed", " to {M}"},
                                Verb{"send", "sends", "sent", " to {M}"},
                                Verb{"donate", "donates", "donated", ""},
                                Verb{"lend", "lends", "lent", " to {M}"}};

constexpr std::array<std::string_view, 12> kRoles = {"A farmer",  "A teacher", "A girl",    "A boy",
                                                     "A baker",   "My friend", "My sister", "My brother",
                                                     "A student", "The shop",  "A child",   "My uncle"};

// Who the story is about: "Tom has", "I have"; the reply says "Tom has", "You have".
struct Subject {
  std::string name, pronoun, answer_name, question_name;
  bool first_person = false;
  std::string has(bool past) const { return past ? "had" : first_person ? "have" : "has"; }
  std::string verb(const Verb& verb, bool past) const {
    return std::string(past ? verb.past : first_person ? verb.base : verb.third);
  }
  std::string does(bool past) const { return past ? "did" : first_person ? "do" : "does"; }
  std::string answer_has() const { return first_person ? "have" : "has"; }
};

Subject random_subject(Random& random) {
  if (random.chance(0.14)) return {"I", "I", "You", "I", true};
  if (random.chance(0.12)) {
    const std::string role(random.pick(kRoles));
    std::string later = role;
    if (later.starts_with("A ")) later = "the " + later.substr(2);
    if (later.starts_with("The ")) later[0] = 't';
    std::string answer = capitalized(later);
    if (later.starts_with("My ")) {
      later[0] = 'm';
      answer = "Your " + later.substr(3);
    }
    const bool woman = role == "A girl" || role == "My sister";
    const std::string pronoun = role == "The shop"                                              ? "it"
                                : role == "A boy" || role == "My brother" || role == "My uncle" ? "he"
                                : woman                                                         ? "she"
                                                                                                : later;
    return {role, pronoun, answer, later};
  }
  const Person& person = random.pick(kPeople);
  const std::string name(person.name);
  return {name, person.woman ? "she" : "he", name, name};
}

std::string_view random_item(Random& random, bool& food) {
  food = random.chance(0.5);
  return food ? random.pick(kFood) : random.pick(kThings);
}

struct Step {
  char operation;
  std::int64_t left, right;
  std::int64_t result() const {
    return operation == '+' ? left + right : operation == '-' ? left - right : left * right;
  }
  std::string written() const {
    return operation == '+'   ? sum_steps(left, right)
           : operation == '-' ? difference_steps(left, right)
                              : product_steps(left, right);
  }
  std::string formula() const {
    return fmt::format("{} {} {} = {}", left, operation == '*' ? 'x' : operation, right, result());
  }
};

// The numbers of a problem, kept out of the other split by the kind of story and the numbers together.
bool belongs(std::string_view kind, std::int64_t a, std::int64_t b, std::int64_t c, Split split) {
  return split_of(fmt::format("word {} {} {} {}", kind, a, b, c)) == split;
}

// Training shows no calculation that is held out among the sums.
bool allowed(const Step& step, Split split) {
  return split == Split::heldout || for_training(step.operation, step.left, step.right);
}

std::int64_t amount(Random& random) {
  return random.chance(0.25)  ? random.between(2, 12)
         : random.chance(0.9) ? random.between(5, 60)
                              : random.between(50, 300);
}

// steps: each idea sentence, its written-out calculation, its result.
Problem make_problem(std::string_view kind, std::string question,
                     const std::vector<std::pair<std::string, Step>>& steps, std::string reply) {
  Problem problem;
  problem.kind = std::string(kind);
  problem.question = std::move(question);
  for (const auto& [idea, step] : steps) {
    problem.steps +=
        fmt::format("{}{} {} So {}.", problem.steps.empty() ? "" : " ", idea, step.written(), step.formula());
    problem.brief += fmt::format("{}{}", problem.brief.empty() ? "" : "; ", step.formula());
    const std::int64_t result = step.result();
    if (!problem.check.empty()) problem.check += "; ";
    if (problem.check.empty()) problem.check = "Check: ";
    if (step.operation == '+') problem.check += fmt::format("{} - {} = {}", result, step.right, step.left);
    if (step.operation == '-') problem.check += fmt::format("{} + {} = {}", result, step.right, step.left);
    if (step.operation == '*') problem.check += fmt::format("{} x {} = {}", step.right, step.left, result);
  }
  problem.check += '.';
  problem.reply = std::move(reply);
  problem.answer = fmt::to_string(steps.back().second.result());
  return problem;
}

// "Tom has 17 apples" and one or two events: "and buys 25 more. Then he eats 6."
struct Story {
  Subject subject;
  bool past, food;
  std::string item, other;
  std::string text;
  bool first_event = true;
};

Story begin_story(Random& random, std::int64_t start) {
  Story story{random_subject(random), random.chance(0.35), false, "", std::string(random.pick(kPeople).name), ""};
  while (story.other == story.subject.name) story.other = random.pick(kPeople).name;
  story.item = random_item(random, story.food);
  constexpr std::array<std::string_view, 3> kStarts = {"{S} {has} {a} {I}", "{S} {has} {a} {I}",
                                                       "{S} {start} with {a} {I}"};
  const std::string_view start_verb = story.past ? "started" : story.subject.first_person ? "start" : "starts";
  story.text = fill(random.pick(kStarts), {{"S", story.subject.name},
                                           {"has", story.subject.has(story.past)},
                                           {"start", start_verb},
                                           {"a", fmt::to_string(start)},
                                           {"I", story.item}});
  return story;
}

void add_event(Story& story, Random& random, bool gain, std::int64_t number) {
  const Verb* verb = nullptr;
  do verb = gain ? &random.pick(kGains) : &random.pick(kLosses);
  while (verb->food_only && !story.food);
  const std::string acts = story.subject.verb(*verb, story.past);
  const std::string after = fill(verb->after, {{"M", story.other}});
  constexpr std::array<std::string_view, 3> kNumbers = {"{n}", "{n}", "{n} {I}"};
  std::string counted = fill(random.pick(kNumbers), {{"n", fmt::to_string(number)}, {"I", story.item}});
  if (after == " more" && counted.size() > fmt::to_string(number).size())
    counted = fmt::format("{} more {}", number, story.item);
  else
    counted += after;
  const std::string he = story.subject.pronoun;
  if (story.first_event && random.chance(0.5))
    story.text += fmt::format(" and {} {}", acts, counted);
  else if (random.chance(0.4))
    story.text += fmt::format(". Then {} {} {}", he, acts, counted);
  else if (random.chance(0.5))
    story.text += fmt::format(". {} {} {}", capitalized(he), acts, counted);
  else
    story.text += fmt::format(", then {} {} {}", he, acts, counted);
  story.first_event = false;
}

std::string ask_story(const Story& story, Random& random, bool loss) {
  constexpr std::array<std::string_view, 5> kAsk = {
      "How many {I} {does} {S} have?", "How many {I} {does} {S} have now?", "How many {I} {does} {S} have in total?",
      "How many {I} {does} {S} have in the end?", "What is the number of {I} {S} {has} now?"};
  constexpr std::array<std::string_view, 5> kAskLoss = {"How many {I} {does} {S} have left?",
                                                        "How many {I} {does} {S} have now?", "How many {I} are left?",
                                                        "How many {I} {does} {S} have?", "How many {I} remain?"};
  const std::string who = random.chance(0.35) ? story.subject.pronoun : story.subject.question_name;
  const bool past = story.past && random.chance(0.3);
  const std::string_view pattern = loss ? random.pick(kAskLoss) : random.pick(kAsk);
  return story.text + ". " +
         fill(pattern,
              {{"I", story.item}, {"does", story.subject.does(past)}, {"S", who}, {"has", story.subject.has(false)}});
}

std::string story_reply(const Story& story, Random& random, std::int64_t result, bool loss) {
  constexpr std::array<std::string_view, 4> kReply = {"{S} {has} {r} {I}.", "{S} {has} {r} {I} now.",
                                                      "{S} now {has} {r} {I}.", "{S} {has} {r} {I}."};
  constexpr std::array<std::string_view, 4> kReplyLoss = {"{S} {has} {r} {I} left.", "{S} {has} {r} {I}.",
                                                          "{S} {has} {r} {I} left.", "{r} {I} are left."};
  return fill(loss ? random.pick(kReplyLoss) : random.pick(kReply), {{"S", story.subject.answer_name},
                                                                     {"has", story.subject.answer_has()},
                                                                     {"r", fmt::to_string(result)},
                                                                     {"I", story.item}});
}

Problem change_problem(Random& random, Split split, bool gain) {
  std::int64_t a = 0, b = 0;
  do {
    a = amount(random), b = amount(random);
    if (!gain && a < b) std::swap(a, b);
  } while (!belongs(gain ? "gain" : "loss", a, b, 0, split) || !allowed({gain ? '+' : '-', a, b}, split));
  Story story = begin_story(random, a);
  add_event(story, random, gain, b);
  const Step step{gain ? '+' : '-', a, b};
  const std::string idea = fmt::format("Start with {}, then {} {}.", a, gain ? "add" : "take away", b);
  return make_problem(gain ? "gain" : "loss", ask_story(story, random, !gain), {{idea, step}},
                      story_reply(story, random, step.result(), !gain));
}

Problem two_step_problem(Random& random, Split split) {
  std::int64_t a = 0, b = 0, c = 0;
  bool first = false, second = false;
  do {
    a = amount(random), b = amount(random), c = amount(random), first = random.chance(0.5), second = random.chance(0.5);
  } while ((!first && a < b) || (!second && (first ? a + b : a - b) < c) ||
           !belongs(first    ? second ? "++" : "+-"
                    : second ? "-+"
                             : "--",
                    a, b, c, split) ||
           !allowed({first ? '+' : '-', a, b}, split) ||
           !allowed({second ? '+' : '-', first ? a + b : a - b, c}, split));
  Story story = begin_story(random, a);
  add_event(story, random, first, b);
  add_event(story, random, second, c);
  const Step one{first ? '+' : '-', a, b}, two{second ? '+' : '-', one.result(), c};
  return make_problem("two steps", ask_story(story, random, !second),
                      {{fmt::format("Start with {}, then {} {}.", a, first ? "add" : "take away", b), one},
                       {fmt::format("Then {} {}.", second ? "add" : "take away", c), two}},
                      story_reply(story, random, two.result(), !second));
}

// Stories of one fixed form. Slots: S M two people, I things, a b the numbers, r the result, T container.
struct Form {
  std::string_view kind;
  char operation;  // of a and b; 'm': b - a is asked for a missing part (a known first, b the total)
  std::string_view question, idea, reply;
};

constexpr std::array kForms = {
    Form{"together", '+', "{S} has {a} {I} and {M} has {b} {I}. How many {I} do they have together?",
         "Together means add.", "Together they have {r} {I}."},
    Form{"together", '+', "{S} has {a} {I}. {M} has {b}. How many {I} do they have in total?", "In total means add.",
         "They have {r} {I} in total."},
    Form{"together", '+',
         "{S} and {M} put their {I} together. {S} brings {a} and {M} brings {b}. How many {I} are there?",
         "Together means add.", "There are {r} {I}."},
    Form{"together", '+', "{S} picked {a} {I} and {M} picked {b} {I}. How many {I} did they pick in all?",
         "In all means add.", "They picked {r} {I} in all."},
    Form{"compare", '-', "{S} has {a} {I}. {M} has {b} {I}. How many more {I} does {S} have than {M}?",
         "How many more means take the difference.", "{S} has {r} more {I} than {M}."},
    Form{"compare", '-', "{S} has {a} {I} and {M} has {b}. How many fewer {I} does {M} have than {S}?",
         "How many fewer means take the difference.", "{M} has {r} fewer {I} than {S}."},
    Form{"more", '+', "{S} has {a} {I}. {M} has {b} more {I} than {S}. How many {I} does {M} have?",
         "{b} more than {a} means add.", "{M} has {r} {I}."},
    Form{"fewer", '-', "{S} has {a} {I}. {M} has {b} fewer {I} than {S}. How many {I} does {M} have?",
         "{b} fewer than {a} means take away.", "{M} has {r} {I}."},
    Form{"box+", '+', "There are {a} {I} in a {T}. {S} puts in {b} more. How many {I} are in the {T} now?",
         "Start with {a}, then add {b}.", "There are {r} {I} in the {T}."},
    Form{"box+", '+', "A {T} holds {a} {I}. {S} adds {b} {I}. How many {I} are in the {T}?",
         "Start with {a}, then add {b}.", "There are {r} {I} in the {T}."},
    Form{"box-", '-', "There are {a} {I} in a {T}. {S} takes out {b}. How many {I} are left in the {T}?",
         "Start with {a}, then take away {b}.", "There are {r} {I} left in the {T}."},
    Form{"box-", '-', "A {T} has {a} {I}. {b} of them are removed. How many {I} remain?",
         "Start with {a}, then take away {b}.", "{r} {I} remain."},
    Form{"colors", '+', "In a {T} there are {a} red {I} and {b} blue {I}. How many {I} are there altogether?",
         "Altogether means add.", "There are {r} {I} altogether."},
    Form{"colors-", '-', "A {T} contains {a} {I}. {b} are red and the rest are blue. How many are blue?",
         "The rest means take away.", "{r} {I} are blue."},
    Form{"missing", 'm', "{S} had {a} {I}. After buying some more, {S} has {b}. How many did {S} buy?",
         "Start with {b}, take away {a}.", "{S} bought {r} {I}."},
    Form{"missing", 'm', "{S} needs {b} {I} and has {a}. How many more {I} does {S} need?",
         "Start with {b}, take away {a}.", "{S} needs {r} more {I}."},
    Form{"gave", '-', "{S} had {a} {I} and has {b} left. How many {I} did {S} give away?",
         "Start with {a}, take away {b}.", "{S} gave away {r} {I}."},
    Form{"cost", '+', "A book costs {a} dollars and a game costs {b} dollars. How much do they cost together?",
         "Together means add.", "Together they cost {r} dollars."},
    Form{"cost", '+',
         "{S} spends {a} dollars on {I} and {b} dollars on food. How many dollars does {S} spend in total?",
         "In total means add.", "{S} spends {r} dollars in total."},
    Form{"change", '-', "{S} has {a} dollars and spends {b} dollars. How many dollars does {S} have left?",
         "Start with {a}, then take away {b}.", "{S} has {r} dollars left."},
    Form{"change", '-', "{S} pays with {a} dollars for something that costs {b} dollars. How much change does {S} get?",
         "Change means take away the cost.", "{S} gets {r} dollars in change."},
    Form{"earn", '+', "{S} has saved {a} dollars and earns {b} dollars more. How much money does {S} have?",
         "Start with {a}, then add {b}.", "{S} has {r} dollars."},
    Form{"age", '+', "{S} is {a} years old. {M} is {b} years older. How old is {M}?", "Older means add.",
         "{M} is {r} years old."},
    Form{"age-", '-', "{S} is {a} years old. {M} is {b} years younger. How old is {M}?", "Younger means take away.",
         "{M} is {r} years old."},
    Form{"age", '+', "{S} is {a} years old now. How old will {S} be in {b} years?", "In {b} years means add.",
         "{S} will be {r} years old."},
    Form{"bus", '+', "There are {a} people on a bus. {b} more people get on. How many people are on the bus?",
         "Start with {a}, then add {b}.", "There are {r} people on the bus."},
    Form{"bus-", '-', "There are {a} people on a train. {b} people get off. How many people are on the train now?",
         "Start with {a}, then take away {b}.", "There are {r} people on the train."},
    Form{"pages", '-', "A book has {a} pages. {S} has read {b} pages. How many pages are left to read?",
         "Left to read means take away.", "{r} pages are left to read."},
    Form{"pages+", '+', "{S} read {a} pages on Monday and {b} pages on Tuesday. How many pages did {S} read?",
         "Both days together means add.", "{S} read {r} pages."},
    Form{"birds", '-', "{a} birds sit in a tree. {b} fly away. How many birds are left?",
         "Start with {a}, then take away {b}.", "{r} birds are left."},
    Form{"birds+", '+', "{a} birds sit in a tree and {b} more join them. How many birds are in the tree?",
         "Start with {a}, then add {b}.", "There are {r} birds in the tree."},
    Form{"class", '+', "A class has {a} girls and {b} boys. How many children are in the class?",
         "Girls and boys together means add.", "There are {r} children in the class."},
    Form{"class-", '-', "There are {a} children in a school. {b} are girls. How many are boys?",
         "The rest means take away.", "{r} children are boys."},
    Form{"walk", '+', "{S} walks {a} miles in the morning and {b} miles in the evening. How many miles does {S} walk?",
         "Both together means add.", "{S} walks {r} miles."},
    Form{"sales", '+', "A shop sold {a} {I} on Friday and {b} {I} on Saturday. How many {I} did it sell?",
         "Both days together means add.", "The shop sold {r} {I}."},
    Form{"rope", '-', "A rope is {a} meters long. {S} cuts off {b} meters. How long is the rope now?",
         "Cutting off means take away.", "The rope is {r} meters long."},
    Form{"groups", '*', "There are {a} boxes with {b} {I} in each. How many {I} are there?",
         "Equal groups means multiply.", "There are {r} {I}."},
    Form{"groups", '*', "{S} has {a} bags. Each bag holds {b} {I}. How many {I} does {S} have?",
         "Equal groups means multiply.", "{S} has {r} {I}."},
    Form{"price", '*', "{S} buys {a} toys that cost {b} dollars each. How much does {S} pay?", "Each means multiply.",
         "{S} pays {r} dollars."}};

Problem form_problem(Random& random, Split split) {
  const Form& form = random.pick(kForms);
  std::int64_t a = 0, b = 0;
  Step step{};
  do {
    a = amount(random), b = amount(random);
    if (form.operation == '*') a = random.between(2, 9), b = random.between(2, 12);
    if (form.operation == '-' && a < b) std::swap(a, b);
    if (form.operation == 'm' && a > b) std::swap(a, b);
    step = form.operation == 'm' ? Step{'-', b, a} : Step{form.operation, a, b};
  } while (a == b || !belongs(form.kind, a, b, 0, split) || !allowed(step, split));
  bool food = false;
  const std::string_view item = random_item(random, food), one = random.pick(kPeople).name,
                         container = random.pick(kContainers);
  std::string_view other = one;
  while (other == one) other = random.pick(kPeople).name;
  const std::string a_text = fmt::to_string(a), b_text = fmt::to_string(b), r_text = fmt::to_string(step.result());
  const auto filled = [&](std::string_view pattern) {
    return fill(pattern,
                {{"S", one}, {"M", other}, {"I", item}, {"T", container}, {"a", a_text}, {"b", b_text}, {"r", r_text}});
  };
  return make_problem(form.kind, filled(form.question), {{filled(form.idea), step}}, filled(form.reply));
}

}  // namespace

Problem one_step_word_problem(Random& random, Split split) {
  if (random.chance(0.5)) return change_problem(random, split, random.chance(0.5));
  return form_problem(random, split);
}

Problem word_problem(Random& random, Split split) {
  return random.chance(0.8) ? one_step_word_problem(random, split) : two_step_problem(random, split);
}

}  // namespace k3::train
