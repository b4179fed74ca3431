// Rules of the pattern language: how things come and go, how sentences follow each other, how one asks, what does not
// matter. The rule "loss-food" adds to "loss" where the things can be eaten.
#include <array>
#include <vector>

#include "base/error.h"
#include "train/tasks/story.h"

namespace k3::train {

namespace {

struct Rule {
  std::string_view name;
  std::vector<std::string_view> alternatives;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = {
      {"own",
       {"{A} [have|has|had] {a} {things}", "{A} [have|has|had] {a} {things}", "{A} [have|has|had] {a} {things}",
        "{A} [start|starts|started] with {a} {things}", "{A} [own|owns|owned] {a} {things}",
        "{A} {take} {a} {things}", "at first {A} [have|has|had] {a} {things}",
        "in the beginning {A} [have|has|had] {a} {things}", "{A} [have|has|had] {a} {things} in a {place}"}},
      {"then",
       {" and ", " and ", " and then ", ", then {A.he} ", ".~ Then {A.he} ", ".~ {A.he} ", ".~ {A.he} ",
        ".~ After that {A.he} ", ".~ Later {A.he} ", ".~ <when> {A.he} "}},
      {"then2", {". Then {A.he} ", ". Later {A.he} ", ". After that {A.he} ", ". {A.he} ", ", and then {A.he} "}},
      {"when",
       {"in the afternoon", "before noon", "after lunch", "the next day", "on Monday", "on the weekend", "at school",
        "in the evening", "during the day", "a week later", "after school", "on the way home"}},
      {"by", {"in the morning", "before noon", "on Monday", "on Saturday", "at the market", "that day",
          "early in the day"}},
      {"gain",
       {"[buy|buys|bought] # more( {things}|)", "[find|finds|found] #( more| {things}|)",
        "[get|gets|got] # (more|more {things}|{things}) from {B}", "[receive|receives|received] # from {B}",
        "[collect|collects|collected] # more( {things}|)", "[pick up|picks up|picked up] #( {things}|)",
        "[add|adds|added] #( more|)( {things}|)", "[win|wins|won] #( {things}|) in a game",
        "[borrow|borrows|borrowed] #( {things}|) from {B}", "[make|makes|made] # more( {things}|)",
        "[take|takes|took] # (more|{things}) from {B}", "[gain|gains|gained] #( {things}|)",
        "[order|orders|ordered] # more", "[buy|buys|bought] #( {things}|) at the (store|market|shop)",
        "[buy|buys|bought] another #", "[get|gets|got] another #( {things}|)",
        "[bring|brings|brought] # more( {things}|)"}},
      {"loss",
       {"[give|gives|gave] #( {things}|)( of them|) to {B}", "[give|gives|gave] {B} #( {things}| of them|)",
        "[lose|loses|lost] #( {things}| of them| of the {things}|)", "[sell|sells|sold] #( {things}| of them|)",
        "[sell|sells|sold] #( of them|) <by>", "[give|gives|gave] away #( {things}| of them|)",
        "[use|uses|used] #( {things}| of them|)", "[drop|drops|dropped] #( {things}| of them|)",
        "[throw|throws|threw] away #( {things}| of them|)", "[share|shares|shared] #( {things}| of them|) with {B}",
        "[leave|leaves|left] # (of them |)at home", "[hand|hands|handed] #( {things}| of them|) to {B}",
        "[send|sends|sent] #( {things}| of them|) to {B}", "[donate|donates|donated] #( {things}| of them|)",
        "[lend|lends|lent] #( {things}| of them|) to {B}", "[sell|sells|sold] # of the {things} to {B}",
        "[break|breaks|broke] #( of them|)"}},
      {"loss-food",
       {"[eat|eats|ate] #( {things}| of them| of the {things}|)",
           "[eat|eats|ate] #( of them|) (for lunch|for breakfast|at school)",
        "[cook|cooks|cooked] #( {things}| of them|)"}},
      {"total",
       {"how many {things} [>do|does] {A.he} have( now| in total| in all| altogether|)?",
        "how many {things} [>do|does] {A.he} have( now| in the end| in total|)?",
        "how many [>do|does] {A.he} have( now|)?",
        "how many {things} [>do|does|did] {A.he} have (then|in the end|after that)?", "what is the total?",
        "what is the total number of {things}?", "how many {things} is that( in total| in all|)?",
        "how many {things} are there( now| in all|)?", "what is the number of {things} {A.he} [have|has] now?",
        "how many are there (now|in total|altogether)?"}},
      {"left",
       {"how many {things} [>do|does] {A.he} have left?", "how many {things} [>do|does] {A.he} have (left|now)?",
        "how many {things} [>do|does] {A.he} still have?", "how many {things} are left?", "how many are left?",
        "how many {things} remain?", "how many [>do|does] {A.he} have (left|now)?",
        "how many {things} [>do|does|did] {A.he} have (left|then|in the end|after that)?",
        "how many {things} are still there?", "what is the number of {things} left?",
        "how many of the {things} are left?",
        "how many {things} [=are|were] left (over|in the end)?", "how many does that leave?"}},
      {"both",
       {"how many {things} do {they} have( together| in total| in all| altogether|)?", "what is the total?",
        "how many {things} is that( together| in total| in all|)?",
        "how many {things} are there( in total| altogether|)?",
        "how many do {they} have together?", "how many {things} do {they} both have?"}},
      {"has", {"{A} [have|has] {r} {rthings}.", "{A} [have|has] {r} {rthings} now.",
          "{A} now [have|has] {r} {rthings}."}},
      {"keeps",
       {"{A} [have|has] {r} {rthings} left.", "{A} still [have|has] {r} {rthings}.", "{r} {rthings} {are} left."}},
      {"aside",
       {"It [=is|was] a sunny day.", "It [=is|was] raining.", "The {things} [=are|were] very nice.",
        "{A.his} favorite color [=is|was] {c1}.", "The weather [=is|was] good.", "{A.he} [like|likes|liked] {things}.",
        "{A.he} also [have|has|had] {n} {things2}.", "There [=are|were] {n} clouds in the sky.",
        "{A.he} also [have|has|had] a dog."}}};
  return kRules;
}

const std::vector<std::string_view>* find_rule(std::string_view name) {
  for (const Rule& rule : rules())
    if (rule.name == name) return &rule.alternatives;
  return nullptr;
}

}  // namespace

std::string_view rule_alternative(Random& random, std::string_view name, bool food) {
  const auto* plain = find_rule(name);
  K3_CHECK(plain != nullptr, "a story wants a rule '{}'", name);
  const auto* extra = food && name == "loss" ? find_rule("loss-food") : nullptr;
  return random.pick(extra != nullptr && random.chance(0.35) ? *extra : *plain);
}

}  // namespace k3::train
