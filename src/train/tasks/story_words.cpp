// The vocabulary of stories: who, what, where, when.
#include <fmt/format.h>

#include <array>
#include <string_view>
#include <vector>

#include "train/tasks/story.h"
#include "train/tasks/words.h"

namespace k3::train {

namespace {

struct Noun {
  std::string_view one, many;
};

constexpr std::array kEatables = {
    Noun{"apple", "apples"},         Noun{"orange", "oranges"},     Noun{"banana", "bananas"},
    Noun{"pear", "pears"},           Noun{"cookie", "cookies"},     Noun{"candy", "candies"},
    Noun{"egg", "eggs"},             Noun{"cherry", "cherries"},    Noun{"grape", "grapes"},
    Noun{"plum", "plums"},           Noun{"peach", "peaches"},      Noun{"lemon", "lemons"},
    Noun{"strawberry", "strawberries"}, Noun{"muffin", "muffins"},  Noun{"sandwich", "sandwiches"},
    Noun{"carrot", "carrots"},       Noun{"tomato", "tomatoes"},    Noun{"potato", "potatoes"},
    Noun{"nut", "nuts"},             Noun{"pancake", "pancakes"},   Noun{"donut", "donuts"},
    Noun{"mango", "mangoes"},        Noun{"fig", "figs"},           Noun{"berry", "berries"},
    Noun{"cupcake", "cupcakes"},     Noun{"chocolate bar", "chocolate bars"}, Noun{"melon", "melons"},
    Noun{"onion", "onions"},         Noun{"roll", "rolls"},         Noun{"biscuit", "biscuits"},
    Noun{"pie", "pies"},             Noun{"slice of pizza", "slices of pizza"}, Noun{"mushroom", "mushrooms"},
    Noun{"walnut", "walnuts"},       Noun{"apricot", "apricots"},   Noun{"kiwi", "kiwis"},
    Noun{"lollipop", "lollipops"},   Noun{"dumpling", "dumplings"}, Noun{"cucumber", "cucumbers"},
    Noun{"olive", "olives"}};

constexpr std::array kObjects = {
    Noun{"book", "books"},           Noun{"pencil", "pencils"},     Noun{"marble", "marbles"},
    Noun{"stamp", "stamps"},         Noun{"coin", "coins"},         Noun{"sticker", "stickers"},
    Noun{"card", "cards"},           Noun{"balloon", "balloons"},   Noun{"flower", "flowers"},
    Noun{"shell", "shells"},         Noun{"stone", "stones"},       Noun{"toy", "toys"},
    Noun{"toy car", "toy cars"},     Noun{"button", "buttons"},     Noun{"pen", "pens"},
    Noun{"ball", "balls"},           Noun{"doll", "dolls"},         Noun{"key", "keys"},
    Noun{"crayon", "crayons"},       Noun{"rose", "roses"},         Noun{"bead", "beads"},
    Noun{"block", "blocks"},         Noun{"postcard", "postcards"}, Noun{"photo", "photos"},
    Noun{"ticket", "tickets"},       Noun{"bottle", "bottles"},     Noun{"cup", "cups"},
    Noun{"plate", "plates"},         Noun{"hat", "hats"},           Noun{"sock", "socks"},
    Noun{"shirt", "shirts"},         Noun{"candle", "candles"},     Noun{"lamp", "lamps"},
    Noun{"chair", "chairs"},         Noun{"notebook", "notebooks"}, Noun{"magazine", "magazines"},
    Noun{"letter", "letters"},       Noun{"ribbon", "ribbons"},     Noun{"badge", "badges"},
    Noun{"rock", "rocks"},           Noun{"leaf", "leaves"},        Noun{"puzzle", "puzzles"},
    Noun{"game", "games"},           Noun{"painting", "paintings"}, Noun{"spoon", "spoons"},
    Noun{"fork", "forks"},           Noun{"brush", "brushes"},      Noun{"envelope", "envelopes"},
    Noun{"kite", "kites"},           Noun{"bracelet", "bracelets"}, Noun{"magnet", "magnets"},
    Noun{"feather", "feathers"},     Noun{"poster", "posters"},     Noun{"scarf", "scarves"},
    Noun{"glove", "gloves"},         Noun{"towel", "towels"},       Noun{"nail", "nails"},
    Noun{"screw", "screws"},         Noun{"brick", "bricks"},       Noun{"eraser", "erasers"},
    Noun{"ruler", "rulers"},         Noun{"drawing", "drawings"},   Noun{"seed", "seeds"},
    Noun{"pebble", "pebbles"},       Noun{"map", "maps"},           Noun{"comic", "comics"}};

constexpr std::array kPlaces = {
    Noun{"box", "boxes"},       Noun{"basket", "baskets"}, Noun{"bag", "bags"},         Noun{"jar", "jars"},
    Noun{"drawer", "drawers"},  Noun{"bowl", "bowls"},     Noun{"crate", "crates"},     Noun{"bucket", "buckets"},
    Noun{"tray", "trays"},      Noun{"chest", "chests"},   Noun{"backpack", "backpacks"}, Noun{"cart", "carts"},
    Noun{"tub", "tubs"},   Noun{"sack", "sacks"},     Noun{"tin", "tins"},         Noun{"case", "cases"}};

constexpr std::array kAnimals = {
    Noun{"cow", "cows"},     Noun{"horse", "horses"},   Noun{"sheep", "sheep"}, Noun{"goat", "goats"},
    Noun{"duck", "ducks"},   Noun{"chicken", "chickens"}, Noun{"pig", "pigs"},  Noun{"rabbit", "rabbits"},
    Noun{"goose", "geese"},  Noun{"donkey", "donkeys"}, Noun{"deer", "deer"},   Noun{"dog", "dogs"}};

constexpr std::array kPersons = {Noun{"child", "children"}, Noun{"person", "people"},   Noun{"student", "students"},
                                 Noun{"guest", "guests"},   Noun{"visitor", "visitors"}, Noun{"man", "men"},
                                 Noun{"woman", "women"},    Noun{"tourist", "tourists"}};

// Somebody who makes and sells things.
struct Trade {
  std::string_view name, make, make_base, part;
  std::vector<Noun> goods;
};

const std::vector<Trade>& trades() {
  static constexpr std::string_view kSell = "[sell|sells|sold]";
  static const std::vector<Trade> kTrades = {
      {"baker", "[bake|bakes|baked]", "bake", kSell, {{"roll", "rolls"}, {"cake", "cakes"}, {"bun", "buns"}, {"loaf",
          "loaves"}}},
      {"baker", "[make|makes|made]", "make", kSell, {{"roll", "rolls"}, {"pie", "pies"}, {"muffin", "muffins"}}},
      {"farmer", "[pick|picks|picked]", "pick", kSell, {{"melon", "melons"}, {"apple", "apples"}, {"pumpkin",
          "pumpkins"}}},
      {"farmer", "[harvest|harvests|harvested]", "harvest", kSell, {{"cabbage", "cabbages"}, {"carrot", "carrots"}}},
      {"tailor", "[sew|sews|sewed]", "sew", kSell, {{"shirt", "shirts"}, {"coat", "coats"}, {"dress", "dresses"}}},
      {"carpenter", "[build|builds|built]", "build", kSell, {{"chair", "chairs"}, {"table", "tables"}}},
      {"potter", "[make|makes|made]", "make", kSell, {{"pot", "pots"}, {"bowl", "bowls"}, {"vase", "vases"}}},
      {"cook", "[make|makes|made]", "make", "[serve|serves|served]", {{"pancake", "pancakes"}, {"pie", "pies"}}},
      {"fisherman", "[catch|catches|caught]", "catch", kSell, {{"crab", "crabs"}, {"lobster", "lobsters"}}},
      {"painter", "[paint|paints|painted]", "paint", kSell, {{"picture", "pictures"}, {"postcard", "postcards"}}},
      {"teacher", "[buy|buys|bought]", "buy", "[hand out|hands out|handed out]", {{"pencil", "pencils"}, {"notebook",
          "notebooks"}}},
      {"grocer", "[order|orders|ordered]", "order", kSell, {{"lemon", "lemons"}, {"egg", "eggs"}}},
      {"jeweler", "[make|makes|made]", "make", kSell, {{"ring", "rings"}, {"necklace", "necklaces"}}},
      {"postman", "[get|gets|got]", "get", "[deliver|delivers|delivered]", {{"letter", "letters"}, {"parcel",
          "parcels"}}}};
  return kTrades;
}

constexpr std::array<std::string_view, 16> kRoles = {"farmer", "teacher", "girl",  "boy",    "baker",   "student",
                                                     "doctor", "driver",  "artist", "singer", "sailor",  "king",
                                                     "queen",  "nurse",   "pupil", "gardener"};
constexpr std::array<std::string_view, 10> kHers = {"sister", "mother", "aunt", "grandmother", "cousin",
                                                    "friend", "neighbor", "niece", "classmate", "daughter"};
constexpr std::array<std::string_view, 10> kHis = {"brother", "father", "uncle", "grandfather", "cousin",
                                                   "friend", "neighbor", "nephew", "classmate", "son"};
constexpr std::array<std::string_view, 4> kGroupsOfPeople = {"girls", "twins", "students", "neighbors"};

Actor person(std::string first, std::string later, bool woman) {
  Actor actor;
  actor.s = later + "'s";
  actor.reply = later, actor.reply_s = actor.s;
  actor.first = std::move(first), actor.later = std::move(later);
  actor.he = woman ? "she" : "he", actor.him = woman ? "her" : "him", actor.his = woman ? "her" : "his";
  return actor;
}

Actor role(Random& random, std::string_view name) {
  const bool woman = name == "girl" || name == "queen" ||
                     (name != "boy" && name != "king" && !name.ends_with("man") && random.chance(0.5));
  const bool vowel = std::string_view("aeiou").find(name[0]) != std::string_view::npos;
  return person(fmt::format("{} {}", vowel ? "an" : "a", name), fmt::format("the {}", name), woman);
}

Actor random_actor(Random& random) {
  const std::int64_t roll = random.below(100);
  if (roll < 10) return {"I", "I", "I", "me", "my", "my", "you", "your", "", true, true};
  if (roll < 13) return {"we", "we", "we", "us", "our", "our", "you", "your", "", true, false};
  if (roll < 17) {
    const std::string group = fmt::format("the {}", random.pick(kGroupsOfPeople));
    return {group, group, "they", "them", "their", group + "'", group, group + "'", "", true, false};
  }
  if (roll < 30) return role(random, random.pick(kRoles));
  if (roll < 40) {
    const bool woman = random.chance(0.5);
    const std::string_view relative = woman ? random.pick(kHers) : random.pick(kHis);
    const std::string name = fmt::format("my {}", relative);
    Actor actor = person(name, name, woman);
    actor.reply = fmt::format("your {}", relative), actor.reply_s = actor.reply + "'s";
    return actor;
  }
  const Person& one = random.pick(kPeople);
  return person(std::string(one.name), std::string(one.name), one.woman);
}

// Somebody else than `first`: a name, or a relation of his.
Actor random_other(Random& random, const Actor& first) {
  if (first.one && !first.first.starts_with("my ") && random.chance(0.3)) {
    const bool woman = random.chance(0.5);
    const std::string_view relative = woman ? random.pick(kHers) : random.pick(kHis);
    const std::string name = fmt::format("{} {}", first.his, relative);
    Actor actor = person(name, name, woman);
    actor.relation = std::string(relative);
    actor.reply = fmt::format("{} {}", first.reply_s, relative), actor.reply_s = actor.reply + "'s";
    return actor;
  }
  for (;;) {
    const Person& one = random.pick(kPeople);
    if (one.name != first.first) return person(std::string(one.name), std::string(one.name), one.woman);
  }
}

std::string with_article(std::string_view noun) {
  const bool vowel = std::string_view("aeiou").find(noun[0]) != std::string_view::npos;
  return fmt::format("{} {}", vowel ? "an" : "a", noun);
}

struct Verb {
  std::string_view base, third, past;
};

constexpr std::array kTaking = {Verb{"pick", "picks", "picked"},       Verb{"collect", "collects", "collected"},
                                Verb{"find", "finds", "found"},        Verb{"buy", "buys", "bought"},
                                Verb{"get", "gets", "got"},            Verb{"gather", "gathers", "gathered"},
                                Verb{"win", "wins", "won"},            Verb{"order", "orders", "ordered"},
                                Verb{"bring", "brings", "brought"},    Verb{"pack", "packs", "packed"},
                                Verb{"receive", "receives", "received"}};
constexpr std::array kGiving = {Verb{"sell", "sells", "sold"},         Verb{"lose", "loses", "lost"},
                                Verb{"use", "uses", "used"},           Verb{"give away", "gives away", "gave away"},
                                Verb{"drop", "drops", "dropped"},      Verb{"donate", "donates", "donated"},
                                Verb{"hand out", "hands out", "handed out"}, Verb{"throw away", "throws away",
                                    "threw away"}};
constexpr std::array kMoving = {Verb{"walk", "walks", "walked"}, Verb{"drive", "drives", "drove"},
                                Verb{"run", "runs", "ran"},      Verb{"ride", "rides", "rode"},
                                Verb{"travel", "travels", "traveled"}, Verb{"hike", "hikes", "hiked"}};

constexpr std::array kTimes = {Noun{"on Monday", "on Tuesday"},        Noun{"on Friday", "on Saturday"},
                               Noun{"in the morning", "in the evening"}, Noun{"in the morning", "in the afternoon"},
                               Noun{"on the first day", "on the second day"}, Noun{"in May", "in June"},
                               Noun{"last week", "this week"},         Noun{"on Saturday", "on Sunday"},
                               Noun{"in spring", "in summer"},         Noun{"before noon", "after noon"},
                               Noun{"on Wednesday", "on Thursday"}};
constexpr std::array kColorPairs = {Noun{"red", "blue"},   Noun{"green", "yellow"}, Noun{"white", "black"},
                                    Noun{"big", "small"},  Noun{"old", "new"},      Noun{"yellow", "red"},
                                    Noun{"blue", "green"}, Noun{"round", "square"}, Noun{"brown", "white"}};
constexpr std::string_view kVehicles[] = {"bus", "train", "tram", "boat", "ferry", "plane"};
constexpr std::string_view kVenues[] = {"room", "hall", "park", "garden", "library", "shop", "pool", "cafe", "school",
    "yard"};
constexpr std::string_view kUnions[] = {"class", "choir", "club", "team", "camp", "school"};
constexpr std::string_view kLongThings[] = {"rope", "ribbon", "board", "string", "wire", "pipe", "stick"};
constexpr std::string_view kLengths[] = {"meters", "feet", "inches", "centimeters"};
constexpr std::string_view kEvents[] = {"movie", "lesson", "game", "concert", "trip", "train ride", "class"};
constexpr std::string_view kMoney[] = {"dollars", "dollars", "dollars", "euros", "coins", "cents", "pounds"};

template <class List>
void set_pair(StoryWords& words, Random& random, const List& list, const char* one, const char* two) {
  const Noun& pair = random.pick(list);
  words.slots[one] = pair.one, words.slots[two] = pair.many;
}

void set_verb(StoryWords& words, const Verb& verb, const std::string& name) {
  words.slots[name] = fmt::format("[{}|{}|{}]", verb.base, verb.third, verb.past);
  words.slots[name + ".base"] = verb.base, words.slots[name + ".past"] = verb.past;
  words.slots[name + ".they"] = fmt::format("[={}|{}]", verb.base, verb.past);
}

}  // namespace

StoryWords random_words(Random& random, Goods goods) {
  StoryWords words;
  words.past = random.chance(0.45);
  words.food = goods == Goods::food || (goods == Goods::any && random.chance(0.45));
  const auto noun = [&]() -> const Noun& { return words.food ? random.pick(kEatables) : random.pick(kObjects); };
  const Noun first = noun();
  auto& slots = words.slots;
  slots["thing"] = first.one, slots["things"] = first.many;
  if (goods == Goods::trade) {
    const Trade& trade = random.pick(trades());
    const Noun& goods_of_trade = random.pick(trade.goods);
    slots["thing"] = goods_of_trade.one, slots["things"] = goods_of_trade.many;
    slots["make"] = trade.make, slots["make.base"] = trade.make_base, slots["part"] = trade.part;
    words.a = random.chance(0.7) ? role(random, trade.name) : random_actor(random);
  } else {
    words.a = random_actor(random);
  }
  Noun second = noun();
  while (second.one == slots["thing"]) second = noun();
  slots["thing2"] = second.one, slots["things2"] = second.many;
  slots["a thing"] = with_article(slots["thing"]), slots["a thing2"] = with_article(second.one);
  words.b = random_other(random, words.a);
  set_pair(words, random, kPlaces, "place", "places");
  set_pair(words, random, kTimes, "t1", "t2");
  set_pair(words, random, kColorPairs, "c1", "c2");
  set_pair(words, random, kPersons, "person", "people");
  const Noun animal = random.pick(kAnimals);
  Noun other = random.pick(kAnimals);
  while (other.one == animal.one) other = random.pick(kAnimals);
  slots["animals"] = animal.many, slots["animals2"] = other.many;
  slots["city"] = random.pick(kCities);
  slots["vehicle"] = random.pick(kVehicles), slots["venue"] = random.pick(kVenues);
  slots["union"] = random.pick(kUnions), slots["rope"] = random.pick(kLongThings);
  slots["meters"] = random.pick(kLengths), slots["miles"] = random.chance(0.6) ? "miles" : "kilometers";
  slots["event"] = random.pick(kEvents), slots["dollars"] = random.pick(kMoney);
  set_verb(words, random.pick(kTaking), "take");
  set_verb(words, random.pick(kGiving), "lose");
  set_verb(words, random.pick(kMoving), "move");
  return words;
}

}  // namespace k3::train
