// One owner: what he has, what comes, what goes; what was there before, what was given.
#include <array>

#include "train/tasks/story_frames.h"

namespace k3::train {

namespace {

constexpr std::string_view kAdd = "Start with {a}, then add {b}.", kTake = "Start with {a}, then take away {b}.";
constexpr std::string_view kHas = "<has>", kKeeps = "<keeps>";

constexpr std::array kFrames = {
    Frame{"gain", "a+b", "<own><then><gain b>.", "<total>", kAdd, kHas},
    Frame{"gain", "a+b", "<own><then><gain b>.", "<total>", kAdd, kHas},
    Frame{"gain", "a+b", "<own><then><gain b>.", "<total>", kAdd, kHas},
    Frame{"gain", "a+b",
          "{A} [have|has|had] {a} {things}.~ {B} [give|gives|gave] {A.him} {b}( more| more {things}| {things}).",
          "<total>", kAdd, kHas},
    Frame{"gain", "a+b",
          "{A} [get|gets|got] {b} {things} from {B}.~ (Before that|At first|Until then) {A.he} had {a}( {things}|).",
          "<total>", kAdd, kHas},
    Frame{"gain", "a+b", "",
          "if {A} [have|has] {a} {things} and [buy|buys] {b} more, how many {things} [>do|does] {A.he} have?",
          kAdd, kHas},
    Frame{"gain", "a+b", "", "if {A} [have|has|had] {a} {things} and <gain b>, <total>", kAdd, kHas},
    Frame{"gain", "a+b",
          "{A} [collect|collects|collected] {things}.~ {A.he} [have|has|had] {a} and [get|gets|got] {b} more"
          "( for {A.his} birthday| from {B}| at the market|).",
          "<total>", kAdd, kHas},
    Frame{"gain", "a+b", "{A} [put|puts|put] {a} {things} into a {place}.~ Then {A.he} [add|adds|added] {b} more.",
          "how many {things} are in the {place}( now|)?", kAdd, "There {are} {r} {rthings} in the {place}."},
    Frame{"gain", "a+b", "{A} [make|makes|made] {a} {things} and {B} [give|gives|gave] {A.him} {b}.", "<total>", kAdd,
          kHas},
    Frame{"loss", "a-b", "<own><then><loss b>.", "<left>", kTake, kKeeps},
    Frame{"loss", "a-b", "<own><then><loss b>.", "<left>", kTake, kKeeps},
    Frame{"loss", "a-b", "<own><then><loss b>.", "<left>", kTake, kKeeps},
    Frame{"loss", "a-b", "{A} {make} {a} {things}( <by>|).~ {A.he} {part} {b}( of them|)( <by>|).", "<left>", kTake,
          kKeeps,
          Goods::trade},
    Frame{"loss", "a-b", "{A} {make} {a} {things} and {part} {b}( of them|).", "<left>", kTake, kKeeps, Goods::trade},
    Frame{"loss", "a-b", "{A} [have|has|had] {a} {things}(.~ {A.he}| and|, but) {part} {b}( of them|).", "<left>",
          kTake,
          kKeeps, Goods::trade},
    Frame{"loss", "a-b", "{A} [have|has|had] {a} {things}.~ {B} [take|takes|took] {b}( of them|).", "<left>", kTake,
          kKeeps},
    Frame{"loss", "a-b", "{A} [have|has|had] {a} {things}.~ {B} [borrow|borrows|borrowed] {b}( of them|).", "<left>",
          kTake,
          kKeeps},
    Frame{"loss", "a-b",
          "{A} [give|gives|gave] {b} {things} to {B}.~ (Before that|At first) {A.he} had {a}( {things}|).",
          "how many( {things}|) [>do|does] {A} have left?", kTake, "{A} [have|has] {r} {rthings} left."},
    Frame{"loss", "a-b", "", "if {A} [have|has] {a} {things} and [give|gives] away {b}, how many {things} are left?",
          kTake,
          kKeeps},
    Frame{"loss", "a-b", "", "if {A} [have|has|had] {a} {things} and <loss b>, <left>", kTake, kKeeps},
    Frame{"loss", "a-b",
          "{A} [take|takes|took] {b} {things} out of a {place}.~ There were {a}( {things}|) in it( before| at first|).",
          "how many {things} are (left|still) in the {place}?", kTake, "{r} {rthings} {are} left in the {place}."},
    Frame{"loss", "a-b",
          "{A} [have|has|had] {a} {things}(, but| and|.) {b} of them [=are broken|were broken].",
          "how many {things} (are not broken|are still good|are whole)?", "Not broken means take away.",
          "{r} {rthings} {are} not broken.", Goods::things},
    Frame{"loss", "a-b", "{A} [have|has|had] {a} {things}, but {b} [=get|got] lost( on the way|).", "<left>", kTake,
          kKeeps},
    Frame{"given", "a-b", "{A} had {a} {things}. {A.he} {lose.past} some( of them|) and now [have|has] {b}( left|).",
          "how many( {things}|) did {A.he} {lose.base}?", "Start with {a}, {b} are left, so take away.",
          "{A} {lose.past} {r} {rthings}."},
    Frame{"given", "a-b",
          "{A} [bring|brings|brought] {a} {things} to (school|the market|a party|the fair) and [come|comes|came] "
          "home with {b}.",
          "how many( {things}|) did {A.he} leave there?", "Start with {a}, {b} are left, so take away.",
          "{A} left {r} {rthings} there."},
    Frame{"given", "a-b",
          "{A} had {a} {things}. {A.he} gave some to {B}( and kept| and now [have|has]|. Now {A.he} [have|has]) {b}.",
          "how many( {things}|) did {A.he} give( away| to {B.him})?", "Start with {a}, {b} are left, so take away.",
          "{A} gave away {r} {rthings}."},
    Frame{"given", "a-b", "There were {a} {things} in a {place}. {A} took some( out|) and now there are {b}( left|).",
          "how many( {things}|) did {A.he} take( out|)?", "Start with {a}, {b} are left, so take away.",
          "{A} took {r} {rthings}."},
    Frame{"got", "b-a",
          "{A} had {a} {things}. (Then {A.he}|{A.he}) {take.past} some more(. Now {A.he} [have|has]| and now "
          "[have|has]) {b}.",
          "how many( more|)( {things}|) did {A.he} {take.base}?", "Start with {b}, take away {a}.",
          "{A} {take.past} {r} {rthings}."},
    Frame{"got", "b-a", "{A} had {a} {things}. {B} gave {A.him} some( more|). Now {A.he} [have|has] {b}.",
          "how many( {things}|) did {B} give {A.him}?", "Start with {b}, take away {a}.",
          "{B} gave {A.him} {r} {rthings}."},
    Frame{"before", "a+b", "{A} {lose.past} {b} {things} and now [have|has] {a}( left|).",
          "how many( {things}|) did {A.he} have (at first|before|in the beginning)?", "Before means add what is gone.",
          "{A} had {r} {rthings}."},
    Frame{"before", "a-b", "{A} {take.past} {b} {things} and now [have|has] {a}.",
          "how many( {things}|) did {A.he} have before( that|)?", "Before means take away what was added.",
          "{A} had {r} {rthings}."}};

}  // namespace

std::span<const Frame> change_frames() { return kFrames; }

}  // namespace k3::train
