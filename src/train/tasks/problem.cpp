#include "train/tasks/problem.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace k3::train {

namespace {

constexpr std::array<std::string_view, 14> kSystems = {"You are a helpful assistant.",
                                                       "You are k3 nano, a small language model.",
                                                       "Be brief.",
                                                       "Answer the question.",
                                                       "You are a friendly assistant.",
                                                       "Be polite and correct.",
                                                       "You answer questions about numbers, lists and tables.",
                                                       "Help the user.",
                                                       "Think carefully and answer.",
                                                       "You are a careful assistant. Check your work.",
                                                       "Answer in one sentence.",
                                                       "Be precise.",
                                                       "You are a teacher for children.",
                                                       "Give short answers."};

}  // namespace

Effort random_effort(Random& random) {
  const std::int64_t roll = random.below(100);
  return roll < 20 ? Effort::off : roll < 34 ? Effort::low : roll < 62 ? Effort::high : Effort::max;
}

void set_effort(Conversation& conversation, Effort effort) {
  conversation.thinking = effort != Effort::off;
  conversation.effort.reset();
  if (effort == Effort::low) conversation.effort = "low";
  if (effort == Effort::high) conversation.effort = "high";
  if (effort == Effort::max) conversation.effort = "max";
}

std::string typed(Random& random, std::string question) {
  if (!random.chance(0.05)) return question;
  if (random.chance(0.5)) {
    for (char& letter : question)
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  if (question.ends_with('?') || question.ends_with('.')) question.pop_back();
  return question;
}

Message user_message(std::string text) {
  Message message;
  message.role = "user";
  message.content.push_back({std::move(text), 0, 0});
  return message;
}

Message assistant_message(const Problem& problem, Effort effort) {
  Message message;
  message.role = "assistant";
  message.content.push_back({problem.reply, 0, 0});
  if (effort == Effort::low) message.reasoning = problem.brief;
  if (effort == Effort::high || effort == Effort::max) message.reasoning = problem.steps;
  if (effort == Effort::max && !problem.check.empty())
    message.reasoning += (message.reasoning.empty() ? "" : " ") + problem.check;
  return message;
}

void maybe_add_system_message(Conversation& conversation, Random& random) {
  if (!random.chance(0.2)) return;
  Message message;
  message.role = "system";
  message.content.push_back({std::string(random.pick(kSystems)), 0, 0});
  conversation.messages.insert(conversation.messages.begin(), std::move(message));
}

Document conversation_of(const std::vector<Problem>& problems, Random& random, bool allow_system) {
  Conversation conversation;
  const Effort effort = random_effort(random);
  set_effort(conversation, effort);
  for (const Problem& problem : problems) {
    conversation.messages.push_back(user_message(problem.question));
    conversation.messages.push_back(assistant_message(problem, effort));
  }
  if (allow_system) maybe_add_system_message(conversation, random);
  conversation.add_generation_prefix = false;
  Document document;
  document.conversation = std::move(conversation);
  document.answer = problems.back().answer;
  document.kind = problems.back().kind;
  return document;
}

Document text_of(const std::vector<Problem>& problems, Random& random) {
  Document document;
  const std::int64_t layout = random.below(4);
  for (const Problem& problem : problems) {
    const std::string worked = problem.steps.empty() ? problem.reply : problem.steps + " " + problem.reply;
    switch (layout) {
      case 0: document.text += fmt::format("Question: {}\nAnswer: {}\n\n", problem.question, worked); break;
      case 1: document.text += fmt::format("Q: {}\nA: {}\n\n", problem.question, problem.reply); break;
      case 2: document.text += fmt::format("{}\n{}\n\n", problem.question, worked); break;
      default:
        document.text += fmt::format("Problem: {}\nSolution: {}{}{}\n\n", problem.question, worked,
                                     problem.check.empty() ? "" : " ", problem.check);
    }
  }
  document.text.pop_back();
  document.answer = problems.back().answer;
  document.kind = problems.back().kind;
  return document;
}

}  // namespace k3::train
