// Differences, more than and fewer than, the missing part, the rest.
#include <array>

#include "train/tasks/story_frames.h"

namespace k3::train {

namespace {

constexpr std::string_view kMore = "How many more means take the difference.",
                           kFewer = "How many fewer means take the difference.",
                           kAdd = "{b} more than {a} means add.", kTake = "{b} fewer than {a} means take away.",
                           kMissing = "Start with {b}, take away {a}.", kRest = "The rest means take away.";

constexpr std::array kFrames = {
    Frame{"compare", "a-b", "{A} [have|has|had] {a} {things}(.~| and) {B} [have|has|had] {b}( {things}|).",
          "how many more( {things}|) [>do|does|did] {A} have than {B}?", kMore,
          "{A} [have|has|had] {r} more {rthings} than {B}."},
    Frame{"compare", "a-b", "{A} [have|has|had] {a} {things}(.~| and) {B} [have|has|had] {b}( {things}|).",
          "how many fewer( {things}|) [>do|does|did] {B} have than {A}?", kFewer,
          "{B} [have|has|had] {r} fewer {rthings} than {A}."},
    Frame{"compare", "b-a", "{A} [have|has|had] {a} {things}(.~| and) {B} [have|has|had] {b}( {things}|).",
          "how many more( {things}|) [>do|does|did] {B} have than {A}?", kMore,
          "{B} [have|has|had] {r} more {rthings} than {A}."},
    Frame{"compare", "b-a", "{A} [have|has|had] {a} {things}(.~| and) {B} [have|has|had] {b}( {things}|).",
          "how many fewer( {things}|) [>do|does|did] {A} have than {B}?", kFewer,
          "{A} [have|has|had] {r} fewer {rthings} than {B}."},
    Frame{"compare", "a-b", "{A} {take} {a} {things} and {B} {take} {b}.",
          "(what is the difference?|how many more( {things}|) [>do|does|did] {A} {take.base} than {B}?|how many more "
          "is that?)",
          "Take the difference.", "The difference is {r}."},
    Frame{"compare", "a-b", "there [=are|were] {a} {things} and {b} {things2} in a {place}.",
          "how many more {things} than {things2} are there?", kMore, "There {are} {r} more {rthings} than {things2}."},
    Frame{"compare", "b-a", "(a farm has|on a farm there are|a farmer has) {a} {animals} and {b} {animals2}.",
          "how many (more {animals2} than {animals}|fewer {animals} than {animals2}) are there?",
          "Take the difference.",
          "The difference is {r}."},
    Frame{"compare", "a-b",
          "a {union} has {a} (girls and {b} boys. How many more girls than boys|boys and {b} girls. How many more "
          "boys than girls)",
          "are there?", kMore, "The difference is {r}."},
    Frame{"compare", "a-b", "{A} {take} {a} {things} {t1} and {b} {t2}.",
          "how many more( {things}|) [>do|does|did] {A.he} {take.base} {t1} than {t2}?", kMore,
          "{A} {take} {r} more {rthings} {t1}."},
    Frame{"compare", "b-a", "{A} {take} {a} {things} {t1} and {b} {t2}.",
          "how many more( {things}|) [>do|does|did] {A.he} {take.base} {t2} than {t1}?", kMore,
          "{A} {take} {r} more {rthings} {t2}."},
    Frame{"cost-", "a-b", "{a thing} costs {a} {dollars} and {a thing2} costs {b}( {dollars}|).",
          "how much (more does the {thing} cost than the {thing2}|less does the {thing2} cost than the "
          "{thing}|cheaper is the {thing2})?",
          "Take the difference.", "The difference is {r} {dollars}."},
    Frame{"length-", "a-b", "one {rope} is {a} {meters} long( and|.) another( one|) is {b}( {meters}| {meters} long|).",
          "(how much longer is the first( one|)?|how much shorter is the second( one|)?|what is the difference?)",
          "Take the difference.", "The difference is {r} {meters}."},
    Frame{"age-", "a-b", "{A} [be] {a} years old(. {B}| and {B}) [be] {b}( years old|).",
          "(how much older [>be] {A} than {B}?|how many years older [>be] {A}?|how much younger [>be] {B}?)",
          "Take the difference.",
          "The difference is {r} years.", Goods::any, Scale::years},
    Frame{"more", "a+b", "{A} [have|has|had] {a} {things}.~ {B} [have|has|had] {b} more( {things}|) than {A}.",
          "how many( {things}|) [>do|does|did] {B} have?", kAdd, "{B} [have|has|had] {r} {rthings}."},
    Frame{"more", "a+b", "{A} [have|has|had] {a} {things} and {B} [have|has|had] {b} more.",
          "how many {things} [>do|does|did] {B} have?", kAdd, "{B} [have|has|had] {r} {rthings}."},
    Frame{"more", "a+b", "{B} [have|has|had] {b} more {things} than {A}. {A} [have|has|had] {a}( {things}|).",
          "how many( {things}|) [>do|does|did] {B} have?", kAdd, "{B} [have|has|had] {r} {rthings}."},
    Frame{"more", "a+b", "{A} {take} {a} {things}. {B} {take} {b} more than {A}.",
          "how many( {things}|) [>do|does|did] {B} {take.base}?", kAdd, "{B} {take} {r} {rthings}."},
    Frame{"more", "a+b", "{A} {take} {a} {things} {t1} and {b} more than that {t2}.",
          "how many( {things}|) [>do|does|did] {A.he} {take.base} {t2}?", kAdd, "{A} {take} {r} {rthings} {t2}."},
    Frame{"fewer", "a-b",
          "{A} [have|has|had] {a} {things}.~ {B} [have|has|had] {b} (fewer|fewer {things}|less) than {A}.",
          "how many( {things}|) [>do|does|did] {B} have?", kTake, "{B} [have|has|had] {r} {rthings}."},
    Frame{"fewer", "a-b", "{B} [have|has|had] {b} fewer {things} than {A}. {A} [have|has|had] {a}( {things}|).",
          "how many( {things}|) [>do|does|did] {B} have?", kTake, "{B} [have|has|had] {r} {rthings}."},
    Frame{"fewer", "a-b", "{A} {take} {a} {things}. {B} {take} {b} fewer than {A}.",
          "how many( {things}|) [>do|does|did] {B} {take.base}?", kTake, "{B} {take} {r} {rthings}."},
    Frame{"fewer", "a-b", "{A} {take} {a} {things} {t1} and {b} fewer than that {t2}.",
          "how many( {things}|) [>do|does|did] {A.he} {take.base} {t2}?", kTake, "{A} {take} {r} {rthings} {t2}."},
    Frame{"older", "a+b", "{A} [be] {a} years old. {B} [be] {b} years older( than {A}|).",
          "how old [>be] {B}?", "Older means add.", "{B} [be] {r} years old.", Goods::any, Scale::years},
    Frame{"younger", "a-b", "{A} [be] {a} years old. {B} [be] {b} years younger( than {A}|).",
          "how old [>be] {B}?", "Younger means take away.", "{B} [be] {r} years old.", Goods::any, Scale::years},
    Frame{"price+", "a+b", "{a thing} costs {a} {dollars}. {a thing2} costs {b} {dollars} more.",
          "how much does the {thing2} cost?", "{b} more than {a} means add.", "The {thing2} costs {r} {dollars}."},
    Frame{"price-", "a-b",
          "{a thing} costs {a} {dollars}. {a thing2} (costs {b} {dollars} less|is {b} {dollars} cheaper).",
          "how much does the {thing2} cost?", "Cheaper means take away.", "The {thing2} costs {r} {dollars}."},
    Frame{"missing", "b-a",
          "{A} [need|needs|needed] {b} {things}( for a party| for school|) (and|but) [have|has|had]( only|) {a}.",
          "how many more( {things}|) [>do|does|did] {A.he} need?", kMissing,
          "{A} [need|needs|needed] {r} more {rthings}."},
    Frame{"missing", "b-a", "{A} [have|has|had] {a} {things} but [need|needs|needed] {b}.",
          "how many( more| {things}|)( are missing| [>do|does|did] {A.he} still need)?", kMissing,
          "{r} {rthings} {are} missing."},
    Frame{"missing", "b-a", "a {place} has room for {b} {things}. {a}( {things}|) are (already in it|in it).",
          "how many more( {things}|) (fit in|fit into the {place})?", kMissing, "{r} more {rthings} (fit|can go) in."},
    Frame{"missing$", "b-a",
          "{A} [want|wants|wanted] {a thing} that costs {b} {dollars}. {A.he} [have|has|had]( only|) {a}( {dollars}|).",
          "how (much|many) more( {dollars}|) [>do|does|did] {A.he} need?", kMissing,
          "{A} [need|needs|needed] {r} more {dollars}."},
    Frame{"rest", "a-b",
          "a {place} (holds|has|contains) {a} {things}. {b}( of them|) are {c1} and the (rest|others) are {c2}.",
          "how many( {things}| of them|) are {c2}?", kRest, "{r} {rthings} {are} {c2}."},
    Frame{"rest", "a-b", "{A} [have|has|had] {a} {c1} and {c2} {things}. {b} [=are|were] {c1}.",
          "how many [=are|were] {c2}?", kRest,
          "{r} {rthings} {are} {c2}."},
    Frame{"rest", "a-b",
          "there [=are|were] {a} children in a {union}. {b}( of them|) [=are|were] (girls. How many [=are|were] "
          "boys|boys. How many [=are|were] girls)",
          "in the {union}?", kRest, "The rest is {r} children."}};

}  // namespace

std::span<const Frame> compare_frames() { return kFrames; }

}  // namespace k3::train
