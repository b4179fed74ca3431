// Every generator: deterministic, well formed, right by an independent solver, and with held-out problems that training
// never shows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "support/files.h"
#include "train/tasks/arithmetic.h"
#include "train/tasks/generator.h"
#include "train/tasks/random.h"
#include "train/tasks/solver.h"

namespace k3::train {
namespace {

using Json = nlohmann::json;
using test::contains;
using test::content_of;

std::string as_text(const Document& document) {
  return document.conversation ? to_text(render(*document.conversation, ChatFormat::xtml)) : document.text;
}

bool in_words(const std::string& question) { return test::numbers_of(question).size() < 2; }

// Calls check(question, assistant message) for every turn of `count` documents.
template <class Check>
void each_turn(const std::string& name, int count, Check&& check, Split split = Split::train) {
  const auto generator = make_generator(name, 11, split);
  for (int at = 0; at < count; ++at) {
    const Document document = generator->next();
    ASSERT_TRUE(document.conversation);
    const auto& messages = document.conversation->messages;
    for (std::size_t turn = 1; turn < messages.size(); ++turn)
      if (messages[turn].role == "assistant" && messages[turn - 1].role == "user")
        check(content_of(messages[turn - 1]), messages[turn]);
  }
}

std::int64_t last_of(const Message& message) {
  const std::string text = content_of(message);
  const std::int64_t number = test::numbers_of(text).back();
  const std::size_t at = text.rfind(std::to_string(number));
  const bool negative = at > 0 && text[at - 1] == '-' && (at < 2 || text[at - 2] == ' ' || text[at - 2] == '=');
  return negative ? -number : number;
}

std::vector<Split> splits_of(const std::string& name) {
  if (name == "smalltalk") return {Split::train};
  if (name == "wordproblems-newforms") return {Split::heldout};
  return {Split::train, Split::heldout};
}

TEST(Generators, SameSeedSameDocuments) {
  for (const GeneratorName& name : generator_names()) {
    const Split split = splits_of(name.name)[0];
    const auto one = make_generator(name.name, 3, split), same = make_generator(name.name, 3, split),
               other = make_generator(name.name, 4, split);
    std::string first, second, third;
    for (int at = 0; at < 20; ++at)
      first += as_text(one->next()), second += as_text(same->next()), third += as_text(other->next());
    EXPECT_EQ(first, second) << name.name;
    EXPECT_NE(first, third) << name.name;
  }
}

// The same documents from every compiler: the hash of the first 200 of each generator and split. A change of a
// generator changes its line here, and training data with it.
TEST(Generators, DocumentsArePinned) {
  const std::map<std::string, std::string> pinned = {
      {"arithmetic train", "898b5b3b3d0e42c5"},
      {"arithmetic heldout", "24a229fd9356ebf8"},
      {"arithmetic-2digit train", "607419ecf6d70a6b"},
      {"arithmetic-2digit heldout", "d9a4a33498309d09"},
      {"arithmetic-text train", "7a1a0a8dcf04f23e"},
      {"arithmetic-text heldout", "e1efeb51012e9426"},
      {"wordproblems train", "31dae2be6d094caf"},
      {"wordproblems heldout", "d36e2138bb5fec4a"},
      {"wordproblems-1step train", "1afa734df16a3643"},
      {"wordproblems-1step heldout", "eaa6f4485dc0bc3b"},
      {"wordproblems-newforms heldout", "8d32311d3cb605c6"},
      {"wordproblems-text train", "7703c4ba35c10092"},
      {"wordproblems-text heldout", "def7bb138d99e9cf"},
      {"lists train", "7c35db5508531d70"},
      {"lists heldout", "6274f27032d2ac0b"},
      {"lists-text train", "f0da965c3b6520fd"},
      {"lists-text heldout", "2b5681a6bb092732"},
      {"lookup train", "6ee05e1d0fbb5f73"},
      {"lookup heldout", "74b55f8ab8535c51"},
      {"lookup-text train", "74f30142bfa7235e"},
      {"lookup-text heldout", "e26319b5776d0e25"},
      {"tools train", "3e7272a73834567a"},
      {"tools heldout", "59542e620846fda1"},
      {"smalltalk train", "e693ac3463537d42"},
      {"mixed train", "b36a0366d20907ff"},
      {"mixed heldout", "ac386356b9a4d284"},
      {"passkey-short train", "0d81b32146956863"},
      {"passkey-short heldout", "3994a28cda94eeee"},
      {"passkey-long train", "70cb6dabdc3b7ffe"},
      {"passkey-long heldout", "743c3b46b7f76b39"},
      {"passkey-text train", "e622e5dec940d862"},
      {"passkey-text heldout", "348a35ce0f8802df"},
      {"passkey-long-text train", "6b7a0923aa35a6d8"},
      {"passkey-long-text heldout", "0ae11224239c5632"}};
  for (const GeneratorName& name : generator_names())
    for (const Split split : splits_of(name.name)) {
      const auto generator = make_generator(name.name, 3, split);
      std::string text;
      for (int at = 0; at < 200; ++at) text += as_text(generator->next());
      const std::string key = name.name + (split == Split::train ? " train" : " heldout");
      ASSERT_TRUE(pinned.contains(key)) << key;
      EXPECT_EQ(fmt::format("{:016x}", hash_of(text)), pinned.at(key)) << key;
    }
}

TEST(Generators, WellFormed) {
  for (const GeneratorName& name : generator_names()) {
    for (const Split split : splits_of(name.name)) {
      const auto generator = make_generator(name.name, 5, split);
      for (int at = 0; at < 100; ++at) {
        const Document document = generator->next();
        const std::string text = as_text(document);
        EXPECT_FALSE(text.empty());
        EXPECT_EQ(document.conversation.has_value(), !name.name.ends_with("-text"));
        if (document.conversation) {
          EXPECT_EQ(document.conversation->messages.back().role, "assistant");
        }
      }
    }
  }
  test::expect_user_error([] { make_generator("smalltalk", 1, Split::heldout); }, {"smalltalk", "held-out"});
  test::expect_user_error([] { make_generator("wordproblems-newforms", 1, Split::train); },
                          {"wordproblems-newforms", "evaluation"});
  test::expect_user_error([] { make_generator("sums", 1, Split::train); }, {"sums", "arithmetic"});
}

TEST(Generators, ReasoningFollowsEffort) {
  const auto generator = make_generator("arithmetic-2digit", 2, Split::heldout);
  std::map<std::string, std::pair<double, int>> lengths;
  for (int at = 0; at < 400; ++at) {
    const Document document = generator->next();
    const Conversation& conversation = *document.conversation;
    const std::string effort = conversation.thinking ? *conversation.effort : "off";
    auto& [sum, count] = lengths[effort];
    sum += static_cast<double>(conversation.messages.back().reasoning.size());
    ++count;
  }
  ASSERT_EQ(lengths.size(), 4u);
  const auto mean = [&](const std::string& effort) { return lengths[effort].first / lengths[effort].second; };
  EXPECT_EQ(mean("off"), 0);
  EXPECT_LT(mean("low"), 0.2 * mean("high"));
  EXPECT_GT(mean("high"), 30);
  EXPECT_GT(mean("max"), 1.2 * mean("high"));
}

TEST(Generators, ArithmeticIsRight) {
  for (const char* name : {"arithmetic", "arithmetic-2digit"})
    each_turn(name, 800, [](const std::string& question, const Message& reply) {
      if (const auto wrong = test::wrong_equation(reply.reasoning + "\n" + content_of(reply)))
        ADD_FAILURE() << question << ": " << *wrong;
      if (!in_words(question)) {
        EXPECT_EQ(last_of(reply), test::solve_arithmetic(question)) << question;
      }
    });
}

std::vector<std::string> items_of(const std::string& text) {
  std::vector<std::string> items;
  std::string item;
  for (const char byte : text + ",") {
    if (byte != ',')
      item += byte;
    else {
      while (!item.empty() && item.front() == ' ') item.erase(0, 1);
      while (!item.empty() && (item.back() == '.' || item.back() == '?' || item.back() == ' ')) item.pop_back();
      items.push_back(item);
      item.clear();
    }
  }
  return items;
}

TEST(Generators, ListsAreRight) {
  std::map<std::string, int> seen;
  each_turn("lists", 1500, [&](const std::string& question, const Message& reply) {
    const std::string answer = content_of(reply);
    const std::size_t colon = question.find(": ");
    if (colon == std::string::npos) return;
    const std::string rest = question.substr(colon + 2);
    const auto starts = [&](const char* words) { return question.starts_with(words); };
    auto items = items_of(rest);
    if (starts("Repeat") || starts("Copy") || starts("Say this") || starts("Write the following") || starts("Echo") ||
        starts("Please repeat")) {
      ++seen["copy"];
      EXPECT_EQ(answer, rest);
    } else if (starts("Reverse") || starts("Write the list")) {
      ++seen["reverse"];
      std::reverse(items.begin(), items.end());
      EXPECT_EQ(items_of(answer), items) << question;
    } else if (starts("Sort these numbers: ") || starts("Arrange in ascending") || starts("Put these numbers")) {
      ++seen["sort"];
      std::sort(items.begin(), items.end(),
                [](const std::string& a, const std::string& b) { return std::stoll(a) < std::stoll(b); });
      EXPECT_EQ(items_of(answer), items) << question;
    } else if (contains(question, "alphabetical")) {
      ++seen["words"];
      std::sort(items.begin(), items.end());
      EXPECT_EQ(items_of(answer), items) << question;
    } else if (contains(question, "maximum") || contains(question, "the largest: ") || contains(question, "minimum") ||
               contains(question, "the smallest: ")) {
      ++seen["extreme"];
      const auto numbers = test::numbers_of(rest);
      const bool largest = contains(question, "max") || contains(question, "largest");
      EXPECT_EQ(test::numbers_of(answer).back(), largest ? *std::max_element(numbers.begin(), numbers.end())
                                                         : *std::min_element(numbers.begin(), numbers.end()));
    } else if (starts("How many words are") || starts("Count the words") || starts("How many items are")) {
      ++seen["count"];
      EXPECT_EQ(test::numbers_of(answer).back(), static_cast<std::int64_t>(items.size())) << question;
    }
  });
  for (const char* kind : {"copy", "reverse", "sort", "words", "extreme", "count"}) EXPECT_GT(seen[kind], 15) << kind;
}

TEST(Generators, LookupsAreRight) {
  int objects = 0, tables = 0;
  each_turn("lookup", 800, [&](const std::string& question, const Message& reply) {
    const std::string answer = content_of(reply);
    const std::size_t begin = question.find('{'), end = question.rfind('}');
    if (begin != std::string::npos && question.find('[') == std::string::npos) {
      const Json object = Json::parse(question.substr(begin, end - begin + 1));
      const std::string asked = question.substr(0, begin) + question.substr(end + 1);
      bool found = false;
      for (const auto& [name, value] : object.items()) {
        const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        if (contains(asked, name) && contains(answer, text)) found = true;
      }
      EXPECT_TRUE(found) << question << " -> " << answer;
      ++objects;
    } else {
      // Whatever the layout, the value stands after the name of the asked row and before the next row.
      ++tables;
      std::string value = answer;
      if (contains(value, " is ")) value = value.substr(value.rfind(" is ") + 4);
      if (value.ends_with('.')) value.pop_back();
      EXPECT_TRUE(contains(question, value)) << question << " -> " << answer;
    }
  });
  EXPECT_GT(objects, 200);
  EXPECT_GT(tables, 200);
}

TEST(Generators, PasskeysStandInTheText) {
  for (const char* name : {"passkey-short", "passkey-long"}) {
    const auto generator = make_generator(name, 7, Split::train);
    for (int at = 0; at < 60; ++at) {
      const Document document = generator->next();
      std::string text;
      std::set<std::string> keys;
      for (const Message& message : document.conversation->messages) {
        if (message.role == "user") text += content_of(message);
        if (message.role != "assistant") continue;
        const std::string key = std::to_string(test::numbers_of(content_of(message)).back());
        EXPECT_TRUE(contains(text, key));
        EXPECT_TRUE(keys.insert(key).second) << "a key is asked for twice";
      }
    }
  }
}

TEST(Generators, ToolCallsFitTheirSchema) {
  std::set<std::string> types;
  const auto generator = make_generator("tools", 9, Split::heldout);
  for (int at = 0; at < 400; ++at) {
    const Document document = generator->next();
    const Conversation& conversation = *document.conversation;
    const Message& reply = conversation.messages.back();
    ASSERT_EQ(reply.calls.size(), 1u);
    const std::string request = content_of(conversation.messages[conversation.messages.size() - 2]);
    const Json arguments = Json::parse(reply.calls[0].arguments);
    bool declared = false;
    for (const Json& tool : Json::parse(conversation.tools_json)) {
      if (tool["function"]["name"] != reply.calls[0].name) continue;
      EXPECT_FALSE(declared) << "two tools of one name";
      declared = true;
      const Json& properties = tool["function"]["parameters"]["properties"];
      EXPECT_EQ(properties.size(), arguments.size());
      for (const auto& [name, value] : arguments.items()) {
        ASSERT_TRUE(properties.contains(name)) << name;
        const std::string type = properties[name]["type"];
        types.insert(type);
        EXPECT_EQ(type, value.is_boolean() ? "boolean" : value.is_number() ? "number" : "string");
        const std::string said = value.is_boolean()  ? (value.get<bool>() ? "on" : "off")
                                 : value.is_string() ? value.get<std::string>()
                                                     : value.dump();
        EXPECT_TRUE(contains(request, said)) << request << " / " << said;
      }
    }
    EXPECT_TRUE(declared);
  }
  EXPECT_EQ(types, (std::set<std::string>{"boolean", "number", "string"}));
}

// What the problems of a document are about, without their wording. Numbers in words keep their wording.
std::vector<std::string> essences(const std::string& name, const Document& document) {
  std::vector<std::string> out;
  const auto& messages = document.conversation->messages;
  for (std::size_t turn = 1; turn < messages.size(); ++turn) {
    if (messages[turn].role != "assistant" || messages[turn - 1].role != "user") continue;
    const std::string question = content_of(messages[turn - 1]);
    if (name == "tools") {
      for (const ToolCall& call : messages[turn].calls) out.push_back(document.kind + call.arguments);
    } else if (name.starts_with("arithmetic") && !in_words(question)) {
      auto numbers = test::numbers_of(question);
      std::sort(numbers.begin(), numbers.end());
      out.push_back(Json(numbers).dump() +
                    std::to_string(test::solve_arithmetic(question)));  // the result tells the operation and its order
    } else {
      out.push_back(question);
    }
  }
  return out;
}

TEST(Generators, HeldOutNeverInTraining) {
  for (const char* name : {"arithmetic-2digit", "lists", "lookup", "tools"}) {
    std::set<std::string> heldout;
    const auto held = make_generator(name, 1, Split::heldout);
    for (int at = 0; at < 500; ++at)
      for (const std::string& essence : essences(name, held->next())) heldout.insert(essence);
    EXPECT_GT(heldout.size(), 200u) << name;
    const auto train = make_generator(name, 2, Split::train);
    for (int at = 0; at < 3000; ++at)
      for (const std::string& essence : essences(name, train->next()))
        EXPECT_FALSE(heldout.contains(essence)) << name << ": " << essence;
  }
}

// No reasoning of any training document works out a two-digit sum or difference that is held out.
TEST(Generators, HeldOutSumsStandNowhereInTraining) {
  static const std::regex kCalculation(R"(\b(\d\d) ([+-]) (\d\d)\b)");
  int seen = 0;
  for (const char* name : {"arithmetic", "arithmetic-2digit", "wordproblems", "mixed"}) {
    const auto generator = make_generator(name, 31, Split::train);
    for (int at = 0; at < 600; ++at) {
      const Document document = generator->next();
      for (const Message& message : document.conversation->messages) {
        const std::string text = message.reasoning;
        for (std::sregex_iterator match(text.begin(), text.end(), kCalculation), end; match != end; ++match, ++seen) {
          const std::string before = match->prefix().str();
          if (before.ends_with('-')) continue;  // -15 + 42 is another calculation
          EXPECT_EQ(split_of_calculation((*match)[2].str()[0], std::stoll((*match)[1]), std::stoll((*match)[3])),
                    Split::train)
              << text;
        }
      }
    }
  }
  EXPECT_GT(seen, 500);
  EXPECT_EQ(split_of_calculation('+', 17, 25), Split::heldout);
  EXPECT_EQ(split_of_calculation('+', 25, 17), Split::heldout);
}

}  // namespace
}  // namespace k3::train
