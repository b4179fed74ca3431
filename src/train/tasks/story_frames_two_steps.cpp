// Two steps: changes after each other, totals and then a change, groups and a change, more than and a total.
#include <array>

#include "train/tasks/story_frames.h"

namespace k3::train {

namespace {

constexpr std::string_view kAddAdd = "Start with {a}, then add {b}.;Then add {c}.",
                           kAddTake = "Start with {a}, then add {b}.;Then take away {c}.",
                           kTakeAdd = "Start with {a}, then take away {b}.;Then add {c}.",
                           kTakeTake = "Start with {a}, then take away {b}.;Then take away {c}.";

constexpr std::array kFrames = {
    Frame{"++", "a+b;s+c", "<own><then><gain b><then2><gain c>.", "<total>", kAddAdd, "<has>"},
    Frame{"+-", "a+b;s-c", "<own><then><gain b><then2><loss c>.", "<left>", kAddTake, "<keeps>"},
    Frame{"+-", "a+b;s-c", "<own><then><gain b><then2><loss c>.", "<left>", kAddTake, "<keeps>"},
    Frame{"-+", "a-b;s+c", "<own><then><loss b><then2><gain c>.", "<total>", kTakeAdd, "<has>"},
    Frame{"-+", "a-b;s+c", "<own><then><loss b><then2><gain c>.", "<total>", kTakeAdd, "<has>"},
    Frame{"--", "a-b;s-c", "<own><then><loss b><then2><loss c>.", "<left>", kTakeTake, "<keeps>"},
    Frame{"--", "a-b;s-c",
          "{A} [have|has|had] {a} {things}. {A.he} [give|gives|gave] {b} to {B} and [lose|loses|lost] {c}.",
          "<left>", kTakeTake, "<keeps>"},
    Frame{"--", "a-b;s-c", "{A} {make} {a} {things}. {A.he} {part} {b} {t1} and {c} {t2}.", "<left>", kTakeTake,
          "<keeps>",
          Goods::trade},
    Frame{"+-", "a+b;s-c", "{A} {make} {a} {things} {t1} and {b} {t2}. {A.he} {part} {c}( of them|).", "<left>",
          "Both together means add.;Then take away {c}.", "<keeps>", Goods::trade},
    Frame{"+-", "a+b;s-c", "{A} [have|has|had] {a} {c1} and {b} {c2} {things}. {A.he} <loss c>.", "<left>",
          "Together means add.;Then take away {c}.", "<keeps>"},
    Frame{"more together", "a+b;a+s", "{A} [have|has|had] {a} {things}. {B} [have|has|had] {b} more than {A}.",
          "how many( {things}|) do {they} have (together|in total|in all)?",
          "{b} more than {a} means add.;Together means add.", "Together {they} have {r} {rthings}."},
    Frame{"fewer together", "a-b;a+s", "{A} [have|has|had] {a} {things}. {B} [have|has|had] {b} fewer than {A}.",
          "how many( {things}|) do {they} have (together|in total|in all)?",
          "{b} fewer than {a} means take away.;Together means add.", "Together {they} have {r} {rthings}."},
    Frame{"groups-", "axb;s-c", "{A} [have|has|had] {a} {places} with {b} {things} each. {A.he} <loss c>.", "<left>",
          "{a} groups of {b} means multiply.;Then take away {c}.", "<keeps>", Goods::any, Scale::groups},
    Frame{"groups+", "axb;s+c", "{A} [have|has|had] {a} {places} with {b} {things} each and {c} more {things}.",
          "how many {things} [>do|does] {A.he} have( in all| altogether|)?",
          "{a} groups of {b} means multiply.;Then add {c}.", "{A} [have|has] {r} {rthings}.", Goods::any,
          Scale::groups},
    Frame{"change", "a+b;c-s",
          "{A} [buy|buys|bought] {a thing} for {a} {dollars} and {a thing2} for {b} {dollars}. {A.he} "
          "[pay|pays|paid] with {c} {dollars}.",
          "how much (change|money) [>do|does|did] {A.he} get back?",
          "Both together means add.;Change means {c} take away the cost.", "{A} [get|gets|got] {r} {dollars} back."},
    Frame{"price change", "axb;c-s",
          "{A} [buy|buys|bought] {a} {things} for {b} {dollars} each. {A.he} [pay|pays|paid] with {c} {dollars}.",
          "how much (change|money) [>do|does|did] {A.he} get back?",
          "{a} times {b} means multiply.;Change means {c} take away the cost.",
          "{A} [get|gets|got] {r} {dollars} back.",
          Goods::any, Scale::groups},
    Frame{"need", "a+b;c-s", "{A} [need|needs|needed] {c} {things} and [have|has|had] {a} {c1} and {b} {c2} ones.",
          "how many more( {things}|) [>do|does|did] {A.he} need?",
          "Together means add.;Start with {c}, take away what is there.",
          "{A} [need|needs|needed] {r} more {rthings}."},
    Frame{"stops", "a-b;s+c",
          "there [=are|were] {a} people on a {vehicle}. At (the first|a) stop {b}( people|) [=get|got] off and {c} "
          "[=get|got] on.",
          "how many people are on the {vehicle}( now|)?", kTakeAdd, "There {are} {r} people on the {vehicle}."},
    Frame{"in and out", "a+b;s-c",
          "{a} {people} [=are|were] in a {venue}. {b} more [=come|came] in. Later {c} [=go|went] home.",
          "how many( {people}|) are (left|there now|still there)?", kAddTake, "{r} {people} are left."},
    Frame{"pages of two days", "a-b;s-c", "a book has {a} pages. {A} [read|reads|read] {b} pages {t1} and {c} {t2}.",
          "how many pages are left( to read|)?", kTakeTake, "{r} pages are left."},
    Frame{"two buys", "a-b;s-c",
          "{A} [have|has|had] {a} {dollars}. {A.he} [spend|spends|spent] {b} on {things} and {c} on {things2}.",
          "how (much money|many {dollars}|much) [>do|does] {A.he} have left?", kTakeTake,
          "{A} [have|has] {r} {dollars} left."},
    Frame{"three", "a+b;s+c",
          "there [=are|were] {a} {things} in the first {place}, {b} in the second and {c} in the third.",
          "how many {things} are there( in all| altogether|)?", "Together means add.;Then add {c}.",
          "There {are} {r} {rthings}."}};

}  // namespace

std::span<const Frame> two_step_frames() { return kFrames; }

}  // namespace k3::train
