// Scenes without an owner: containers, vehicles, rooms, animals; money, age, time, lengths.
#include <array>

#include "train/tasks/story_frames.h"

namespace k3::train {

namespace {

constexpr std::string_view kAdd = "Start with {a}, then add {b}.", kTake = "Start with {a}, then take away {b}.";

constexpr std::array kFrames = {
    Frame{"place+", "a+b",
          "there [=are|were] {a} {things} in a {place}.~ {A} ([put|puts|put] in {b}( more| "
          "{things}|)|[add|adds|added] {b}( more|)).",
          "how many( {things}|) are (in the {place}( now|)|there( now| in all|))?", kAdd,
          "There {are} {r} {rthings} in the {place}."},
    Frame{"place+", "a+b", "a {place} (holds|has|contains) {a} {things}. {A} [put|puts|put] {b} more into it.",
          "how many {things} are in (it|the {place})( now|)?", kAdd, "There {are} {r} {rthings} in the {place}."},
    Frame{"place-", "a-b",
          "there [=are|were] {a} {things} in a {place}.~ {A} [take|takes|took] (out {b}|{b} out|{b} of them)( of "
          "them|).",
          "how many( {things}|) are (left|still) in the {place}?", kTake,
          "There {are} {r} {rthings} left in the {place}."},
    Frame{"place-", "a-b",
          "a {place} (holds|has|contains) {a} {things}. {b} of them [=are|were] (removed|sold|taken out).",
          "how many( {things}|) (remain|are left)?", kTake, "{r} {rthings} {are} left in the {place}."},
    Frame{"place-", "a-b", "there [=are|were] {a} {things} on a table. {b}( of them|) [=fall|fell] (down|off).",
          "how many( {things}|) are (left|still) on the table?", kTake, "{r} {rthings} {are} left on the table."},
    Frame{"bus+", "a+b",
          "there [=are|were] {a} people on a {vehicle}.( At the next stop| Then|) {b} (more people|more|people) "
          "[=get|got] on.",
          "how many people are (on the {vehicle}( now|)|there now)?", kAdd, "There {are} {r} people on the {vehicle}."},
    Frame{"bus-", "a-b",
          "there [=are|were] {a} people on a {vehicle}.( At the next stop| Then|) {b}( people| of them|) [=get|got] "
          "off.",
          "how many people are (on the {vehicle} now|still on the {vehicle}|left)?", kTake,
          "There {are} {r} people on the {vehicle}."},
    Frame{"bus-", "a-b", "a {vehicle} [=has|had] {a} passengers. {b}( of them|) [=leave|left].",
          "how many( passengers|) (are left|stay on)?",
          kTake, "{r} passengers are left."},
    Frame{"room+", "a+b",
          "{a} {people} [=are|were] in a {venue}.( Then| Later|) {b} more( {people}|) [=come|came]( in|).",
          "how many( {people}|) are (there( now|)|in the {venue}( now|))?", kAdd,
          "There {are} {r} {people} in the {venue}."},
    Frame{"room-", "a-b",
          "{a} {people} [=are|were] in a {venue}.( Then| Later|) {b}( of them| {people}|) [=go|went] home.",
          "how many( {people}|) are (left|still there|in the {venue} now)?", kTake, "{r} {people} are left."},
    Frame{"room-", "a-b", "there [=are|were] {a} {people} at a party. {b} [=leave|left] early.",
          "how many( {people}|) (stay|are left)?", kTake, "{r} {people} are left."},
    Frame{"room+", "a+b", "{A} [invite|invites|invited] {a} {people} and then {b} more.",
          "how many( {people}|) is that( in all|)?",
          kAdd, "That is {r} {people}."},
    Frame{"animals+", "a+b",
          "{a} {animals} [=stand|stood] (in a field|on a hill|by a river). {b} more( {animals}|) [=come|came].",
          "how many {animals} are there( now|)?", kAdd, "There {are} {r} {animals}."},
    Frame{"animals-", "a-b",
          "{a} {animals} [=are|were] (in a field|on a hill|by a river). {b}( of them|) [=run|ran] away.",
          "how many( {animals}|) are (left|still there)?", kTake, "{r} {animals} are left."},
    Frame{"birds+", "a+b", "{a} birds [=sit|sat] in a tree(. {b} more| and {b} more) [=join|joined] them.",
          "how many birds are (in the tree|there)( now|)?", kAdd, "There {are} {r} birds in the tree."},
    Frame{"birds-", "a-b", "{a} birds [=sit|sat] (in a tree|on a roof). {b}( of them|) [=fly|flew] away.",
          "how many( birds|) are (left|still there)?", kTake, "{r} birds are left."},
    Frame{"money-", "a-b",
          "{A} [have|has|had] {a} {dollars}( and|.~ {A.he}) [spend|spends|spent] {b}( {dollars}|)( on {things}|).",
          "how (much money|many {dollars}|much) [>do|does] {A.he} have left?", kTake,
          "{A} [have|has] {r} {dollars} left."},
    Frame{"money-", "a-b", "{A} [have|has|had] {a} {dollars}. {A.he} [buy|buys|bought] {a thing} for {b}( {dollars}|).",
          "how (much money|many {dollars}|much) (is left|[>do|does] {A.he} have left)?", kTake,
          "{A} [have|has] {r} {dollars} left."},
    Frame{"money-", "a-b", "{A} [pay|pays|paid] with {a} {dollars} for {a thing} that [=costs|cost] {b}( {dollars}|).",
          "how much (change|money) [>do|does|did] {A.he} get( back|)?", "Change means take away the cost.",
          "{A} [get|gets|got] {r} {dollars} back."},
    Frame{"money+", "a+b",
          "{A} [have|has|had] {a} {dollars}( saved|)( and|.~ {A.he}) [earn|earns|earned] {b}( {dollars}|) more.",
          "how (much money|many {dollars}) [>do|does] {A.he} have( now|)?", kAdd, "{A} [have|has] {r} {dollars}."},
    Frame{"money+", "a+b", "{A} [have|has|had] {a} {dollars}.~ {B} [give|gives|gave] {A.him} {b}( {dollars}|)( more|).",
          "how (much money|many {dollars}) [>do|does] {A.he} have( now|)?", kAdd, "{A} [have|has] {r} {dollars}."},
    Frame{"sale", "a-b", "{a thing} [=costs|cost] {a} {dollars}. (Today|In the sale|Now) it is {b} {dollars} cheaper.",
          "(how much|what) does (it|the {thing}) cost( now|)?", "Cheaper means take away.",
          "The {thing} costs {r} {dollars}."},
    Frame{"sale+", "a+b", "{a thing} [=costs|cost] {a} {dollars}. Then the price [=goes|went] up by {b}( {dollars}|).",
          "how much does (it|the {thing}) cost now?", "Going up means add.", "The {thing} costs {r} {dollars}."},
    Frame{"age+", "a+b", "", "{A} [am] {a} years old( now|). How old will {A.he} be in {b} years?",
          "In {b} years means add.",
          "{A} will be {r} years old.", Goods::any, Scale::years},
    Frame{"ago", "a-b", "", "{A} [am] {a} years old( now|). How old [>was] {A.he} {b} years ago?",
          "Years ago means take away.",
          "{A} [was] {r} years old.", Goods::any, Scale::years},
    Frame{"cut", "a-b", "a {rope} [=is|was] {a} {meters} long. {A} [cut|cuts|cut] off {b}( {meters}|).",
          "how long is (it|the {rope})( now|)?", "Cutting off means take away.", "The {rope} is {r} {meters} long."},
    Frame{"grow", "a+b", "a (tree|plant|flower) [=is|was] {a} {meters} tall. It [=grows|grew] {b}( more|)( {meters}|).",
          "how tall is it( now|)?", "Growing means add.", "It is {r} {meters} tall."},
    Frame{"pages-", "a-b", "a book has {a} pages. {A} [have|has|had] read {b}( of them| pages|).",
          "how many pages (are left( to read|)|[>do|does] {A.he} still have to read)?", "Left to read means take away.",
          "{r} pages are left."},
    Frame{"way", "a-b", "the way to {city} is {a} {miles}. {A} [have|has|had] (gone|driven|traveled) {b}( {miles}|).",
          "how (far is it now|many {miles} are left|much farther is it)?", kTake, "{r} {miles} are left."},
    Frame{"homework", "a-b",
          "{A} [have|has|had] {a} (exercises|sums|letters|tasks) to do(.~ {A.he}| and) [have|has|had] done {b}( of "
          "them|).",
          "how many are left( to do|)?", kTake, "{r} {are} left."},
    Frame{"clock-", "a-b", "a {event} (takes|lasts) {a} minutes. {b} minutes (are over|have passed|are gone).",
          "how many( minutes|) are left?", kTake, "{r} minutes are left."},
    Frame{"points+", "a+b", "{A} [have|has|had] {a} points and [win|wins|won] {b}( more|).",
          "how many points [>do|does] {A.he} have( now|)?",
          kAdd, "{A} [have|has] {r} points."},
    Frame{"points-", "a-b", "{A} [have|has|had] {a} points and [lose|loses|lost] {b}( of them|).",
          "how many points [>do|does] {A.he} have( now| left|)?", kTake, "{A} [have|has] {r} points."},
    Frame{"degrees+", "a+b",
          "in the morning it [=is|was] {a} degrees. (By noon|Later) it [=gets|got] {b} degrees warmer.",
          "how (warm|many degrees) is it( now|)?", "Warmer means add.", "It is {r} degrees."},
    Frame{"degrees-", "a-b", "at noon it [=is|was] {a} degrees. (At night|Later) it [=gets|got] {b} degrees colder.",
          "how (warm|many degrees) is it( now|)?", "Colder means take away.", "It is {r} degrees."}};

}  // namespace

std::span<const Frame> scene_frames() { return kFrames; }

}  // namespace k3::train
