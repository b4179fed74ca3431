// Story forms for evaluation alone: neither these sentences nor these questions stand in training. They measure what a
// model makes of a story that it was never taught.
#include <array>

#include "train/tasks/story_frames.h"

namespace k3::train {

namespace {

constexpr std::string_view kAdd = "Start with {a}, then add {b}.", kTake = "Start with {a}, then take away {b}.",
                           kTogether = "Together means add.", kGroups = "{a} groups of {b} means multiply.";

constexpr std::array kFrames = {
    Frame{"parking", "a-b", "A parking lot has {a} cars on it. In the evening {b} cars drive off.",
          "how many cars are still parked?",
          kTake, "{r} cars are parked."},
    Frame{"hens", "a+b", "{A.s} hens laid {a} eggs on Sunday and {b} eggs on Monday.",
          "how many eggs did the hens lay in those two days?", kTogether, "The hens laid {r} eggs."},
    Frame{"candles", "a-b", "There were {a} candles burning. The wind blew out {b} of them.",
          "how many candles were still burning?",
          kTake, "{r} candles were burning."},
    Frame{"museum", "a+b", "A museum counted {a} visitors before lunch and {b} visitors after lunch.",
          "how many people visited the museum that day?", kTogether, "{r} people visited the museum."},
    Frame{"stairs", "a+b", "{A} climbed {a} steps of a tower, took a rest and climbed {b} more steps to the top.",
          "how many steps does the tower have?", kAdd, "The tower has {r} steps."},
    Frame{"match", "a-b", "The red team scored {a} goals and the blue team scored {b} goals.",
          "by how many goals did the red team win?", "Take the difference.", "The red team won by {r} goals."},
    Frame{"theater", "a-b", "A theater has {a} seats. {b} seats are taken.", "how many seats are free?", kTake,
          "{r} seats are free."},
    Frame{"tank", "a-b", "A tank holds {a} liters of water. {b} liters leak out overnight.",
          "how many liters of water remain in the tank?",
          kTake, "{r} liters are left."},
    Frame{"fence", "a-b", "{A} must paint {a} fence posts. So far {A.he} [have|has] painted {b} posts.",
          "how many posts [>do|does] {A.he} still have to paint?", kTake, "{r} posts are left to paint."},
    Frame{"orchard", "axb", "In an orchard stand {a} rows of trees with {b} trees in every row.",
          "how many trees grow in the orchard?",
          kGroups, "There are {r} trees.", Goods::any, Scale::groups},
    Frame{"jigsaw", "a-b", "A jigsaw has {a} pieces. {A} [have|has] placed {b} pieces so far.",
          "how many pieces [>have|has] {A.he} not placed yet?",
          kTake, "{r} pieces are not placed."},
    Frame{"tulips", "a+b", "{A} planted {a} tulips by the door and {b} daisies along the path.",
          "how many flowers did {A.he} plant altogether?", kTogether, "{A} planted {r} flowers."},
    Frame{"harbor", "a+b", "{a} ships lie in the harbor. During the storm {b} other ships seek shelter there.",
          "how many ships does the harbor hold now?", kAdd, "There are {r} ships in the harbor."},
    Frame{"thirsty", "a-b",
          "For the hike {A} packed {a} bottles of water. On the way everybody drank, and {b} bottles got empty.",
          "how many full bottles were there in the end?", kTake, "{r} bottles were full."},
    Frame{"library", "a-b", "A library lends {b} of its {a} new books during the first week.",
          "how many of the new books stay on the shelves?", kTake, "{r} new books stay."},
    Frame{"chess", "a+b", "Two chess players met. One had won {a} medals in his life, the other {b}.",
          "how many medals had the two won altogether?", kTogether, "They had won {r} medals."}};

}  // namespace

std::span<const Frame> new_form_frames() { return kFrames; }

}  // namespace k3::train
