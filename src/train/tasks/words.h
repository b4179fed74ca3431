// Word lists of the generators: people, things, places, colours, short everyday words.
#pragma once

#include <array>
#include <string_view>

namespace k3::train {

struct Person {
  std::string_view name;
  bool woman;
};

inline constexpr std::array kPeople = {
    Person{"Tom", false},    Person{"Anna", true},   Person{"Ben", false},     Person{"Mia", true},
    Person{"Sam", false},    Person{"Lily", true},   Person{"Jack", false},    Person{"Emma", true},
    Person{"Max", false},    Person{"Sara", true},   Person{"Leo", false},     Person{"Nina", true},
    Person{"Paul", false},   Person{"Julia", true},  Person{"Peter", false},   Person{"Maria", true},
    Person{"John", false},   Person{"Kate", true},   Person{"Mark", false},    Person{"Lucy", true},
    Person{"David", false},  Person{"Grace", true},  Person{"Oscar", false},   Person{"Ella", true},
    Person{"Henry", false},  Person{"Sofia", true},  Person{"Adam", false},    Person{"Clara", true},
    Person{"Noah", false},   Person{"Ruth", true},   Person{"Felix", false},   Person{"Alice", true},
    Person{"Hugo", false},   Person{"Rosa", true},   Person{"Ivan", false},    Person{"Mary", true},
    Person{"Omar", false},   Person{"Jane", true},   Person{"Ravi", false},    Person{"Priya", true},
    Person{"Kenji", false},  Person{"Yuki", true},   Person{"Carlos", false},  Person{"Elena", true},
    Person{"James", false},  Person{"Olivia", true}, Person{"Daniel", false},  Person{"Hannah", true},
    Person{"Bob", false},    Person{"Amy", true},    Person{"Jim", false},     Person{"Linda", true},
    Person{"Steve", false},  Person{"Susan", true},  Person{"Mike", false},    Person{"Laura", true},
    Person{"Tim", false},    Person{"Diana", true},  Person{"Alex", false},    Person{"Eva", true},
    Person{"George", false}, Person{"Helen", true},  Person{"Frank", false},   Person{"Iris", true},
    Person{"Victor", false}, Person{"Nora", true},   Person{"Simon", false},   Person{"Paula", true},
    Person{"Martin", false}, Person{"Vera", true},   Person{"Luis", false},    Person{"Zoe", true},
    Person{"Erik", false},   Person{"Ingrid", true}, Person{"Ahmed", false},   Person{"Fatima", true},
    Person{"Chen", false},   Person{"Ling", true},   Person{"William", false}, Person{"Charlotte", true}};

inline constexpr std::array<std::string_view, 30> kFood = {
    "apples",   "oranges",  "bananas",  "pears",      "cookies",      "candies", "eggs",       "cherries",
    "grapes",   "plums",    "peaches",  "lemons",     "strawberries", "muffins", "sandwiches", "carrots",
    "tomatoes", "potatoes", "nuts",     "cakes",      "pancakes",     "sweets",  "donuts",     "mangoes",
    "figs",     "berries",  "cupcakes", "chocolates", "melons",       "onions"};

inline constexpr std::array<std::string_view, 46> kThings = {
    "books",   "pencils", "marbles", "stamps",    "coins",     "stickers",     "cards",     "balloons",
    "flowers", "shells",  "stones",  "toys",      "toy cars",  "buttons",      "pens",      "balls",
    "dolls",   "keys",    "crayons", "roses",     "beads",     "blocks",       "postcards", "photos",
    "tickets", "boxes",   "bottles", "cups",      "plates",    "hats",         "socks",     "shirts",
    "candles", "lamps",   "chairs",  "notebooks", "magazines", "letters",      "ribbons",   "badges",
    "rocks",   "leaves",  "puzzles", "games",     "paintings", "puzzle pieces"};

inline constexpr std::array<std::string_view, 24> kContainers = {
    "box",  "basket",   "bag",   "jar",     "drawer", "bowl",     "crate", "bucket",
    "room", "garden",   "shop",  "kitchen", "truck",  "cupboard", "store", "garage",
    "tray", "suitcase", "chest", "barn",    "shed",   "backpack", "cart",  "van"};

inline constexpr std::array<std::string_view, 64> kCities = {
    "Paris",    "London",  "Berlin",   "Rome",          "Madrid",       "Tokyo",     "Oslo",      "Vienna",
    "Lisbon",   "Athens",  "Dublin",   "Prague",        "Warsaw",       "Moscow",    "Cairo",     "Delhi",
    "Beijing",  "Sydney",  "Toronto",  "Boston",        "Chicago",      "Denver",    "Seattle",   "Dallas",
    "Miami",    "Lima",    "Bogota",   "Nairobi",       "Lagos",        "Seoul",     "Bangkok",   "Hanoi",
    "Munich",   "Hamburg", "Zurich",   "Geneva",        "Milan",        "Naples",    "Venice",    "Porto",
    "Lyon",     "Nice",    "Bern",     "Riga",          "Tallinn",      "Helsinki",  "Stockholm", "Copenhagen",
    "Budapest", "Sofia",   "Istanbul", "Mumbai",        "Osaka",        "Kyoto",     "Manila",    "Jakarta",
    "Perth",    "Quebec",  "New York", "San Francisco", "Buenos Aires", "Cape Town", "Hong Kong", "Mexico City"};

inline constexpr std::array<std::string_view, 16> kColors = {"red",    "blue",   "green",  "yellow", "black", "white",
                                                             "brown",  "orange", "purple", "pink",   "gray",  "golden",
                                                             "silver", "dark",   "bright", "pale"};

inline constexpr std::array<std::string_view, 96> kWords = {
    "apple",  "river",   "stone",   "cloud",  "table",  "horse",  "green",  "music",  "paper",  "light",    "winter",
    "garden", "window",  "bread",   "silver", "forest", "house",  "water",  "tree",   "bird",   "fish",     "dog",
    "cat",    "sun",     "moon",    "star",   "road",   "door",   "book",   "chair",  "hand",   "boat",     "king",
    "queen",  "milk",    "sugar",   "salt",   "snow",   "rain",   "wind",   "fire",   "earth",  "gold",     "iron",
    "glass",  "wood",    "rose",    "leaf",   "lion",   "bear",   "wolf",   "fox",    "mouse",  "sheep",    "goat",
    "cow",    "hill",    "lake",    "sea",    "sand",   "ship",   "train",  "wheel",  "clock",  "lamp",     "bell",
    "key",    "box",     "bag",     "hat",    "coat",   "shoe",   "ring",   "coin",   "card",   "letter",   "song",
    "story",  "night",   "morning", "spring", "summer", "market", "castle", "bridge", "island", "mountain", "valley",
    "desert", "village", "city",    "street", "school", "doctor", "farmer", "friend"};

inline constexpr std::array<std::string_view, 32> kAdjectives = {
    "old",     "young",  "small", "large",  "quiet",  "happy",  "tired",  "clever", "slow",  "quick", "kind",
    "brave",   "cold",   "warm",  "dark",   "bright", "heavy",  "light",  "long",   "short", "green", "blue",
    "strange", "gentle", "busy",  "lonely", "proud",  "honest", "hungry", "sleepy", "noisy", "calm"};

}  // namespace k3::train
