#include "train/tasks/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "model/generate.h"
#include "train/tasks/answers.h"
#include "train/tasks/passkey.h"
#include "train/tasks/random.h"

namespace k3::train {

namespace {

struct Task {
  const char* name;
  const char* generator;
  const char* summary;
  std::int64_t answer_tokens;  // room for thinking and the answer
};

constexpr std::array kTasks = {
    Task{"arithmetic", "arithmetic-2digit", "sums and differences of two numbers of two digits", 192},
    Task{"wordproblems", "wordproblems-1step", "word problems of one step", 256},
    Task{"wordproblems-newforms", "wordproblems-newforms", "word problems in story forms that training never has", 256},
    Task{"tools", "tools", "one tool call with the right name and arguments", 192},
    Task{"passkey", "", "a key hidden in text of --length tokens", 64}};

const Task& task_named(const std::string& name) {
  std::string known = "loss";
  for (const Task& task : kTasks) {
    if (name == task.name) return task;
    known += fmt::format(", {}", task.name);
  }
  throw_user("there is no task {}; known are {}", name, known);
}

Effort effort_named(const std::string& name) {
  if (name == "off") return Effort::off;
  if (name == "low") return Effort::low;
  if (name == "high") return Effort::high;
  if (name == "max") return Effort::max;
  throw_user("effort {} is none of off, low, high, max", name);
}

struct Question {
  std::vector<std::int64_t> prompt;
  std::string text, wanted, group;
  ToolCall call;  // tools
};

std::string text_of(const Message& message) {
  std::string text;
  for (const ContentPart& part : message.content) text += part.text;
  return text;
}

Question question_of(Conversation conversation, const std::string& answer, const std::string& kind, const Task& task,
                     Effort effort, const Tokenizer& tokenizer) {
  Question question;
  const auto reply = std::find_if(conversation.messages.begin(), conversation.messages.end(),
                                  [](const Message& message) { return message.role == "assistant"; });
  K3_CHECK(reply != conversation.messages.end() && reply != conversation.messages.begin(),
           "a problem of task {} has no answer", task.name);
  question.text = text_of(*(reply - 1));
  question.wanted = answer;
  const std::string name = task.name;
  if (name == "tools") {
    question.call = reply->calls.at(0);
    question.wanted = fmt::format("{} {}", question.call.name, question.call.arguments);
  } else {
    question.group = kind;
  }
  conversation.messages.erase(reply, conversation.messages.end());
  set_effort(conversation, effort);
  conversation.add_generation_prefix = true;
  for (const TokenId id : to_ids(render(conversation, chat_format_of(tokenizer)), tokenizer))
    question.prompt.push_back(id);
  return question;
}

std::vector<Question> make_questions(const Task& task, const TaskOptions& options, const Tokenizer& tokenizer) {
  const Effort effort = effort_named(options.effort);
  std::vector<Question> questions;
  if (std::string(task.name) == "passkey") {
    Random random(options.seed ^ hash_of("passkey evaluation"));
    for (std::int64_t at = 0; at < options.count; ++at) {
      const PasskeyLength built = passkey_of_length(random, Split::heldout, options.length - task.answer_tokens,
                                                    options.filler.get(), tokenizer, effort);
      questions.push_back(question_of(built.conversation, built.answer, "", task, effort, tokenizer));
    }
    return questions;
  }
  const auto generator = make_generator(task.generator, options.seed, Split::heldout);
  while (static_cast<std::int64_t>(questions.size()) < options.count) {
    const Document document = generator->next();
    questions.push_back(question_of(*document.conversation, document.answer, document.kind, task, effort, tokenizer));
  }
  return questions;
}

}  // namespace

std::vector<GeneratorName> task_names() {
  std::vector<GeneratorName> names;
  for (const Task& task : kTasks) names.push_back({task.name, task.summary});
  return names;
}

TaskResult evaluate_task(const Model& model, const Tokenizer& tokenizer, const TaskOptions& options,
                         const std::function<void(std::int64_t)>& progress) {
  const Task& task = task_named(options.task);
  const std::vector<Question> questions = make_questions(task, options, tokenizer);
  std::vector<std::vector<std::int64_t>> prompts;
  for (const Question& question : questions) prompts.push_back(question.prompt);
  GenerateOptions generate;
  generate.max_tokens = task.answer_tokens;
  generate.stop_ids = {tokenizer.control("<|end_of_msg|>")};
  const auto written = generate_batch(model, prompts, generate, options.slots, progress);

  TaskResult result;
  const std::string name = task.name;
  for (std::size_t at = 0; at < questions.size(); ++at) {
    const Question& question = questions[at];
    const Reply reply = parse_reply(written[at], tokenizer, options.effort != "off");
    const bool right = name == "tools"     ? right_call(reply, question.call)
                       : name == "passkey" ? right_key(reply, question.wanted)
                                           : right_number(reply, question.wanted);
    ++result.count;
    result.right += right ? 1 : 0;
    result.tokens += static_cast<std::int64_t>(written[at].size());
    if (!question.group.empty()) {
      auto group = std::find_if(result.groups.begin(), result.groups.end(),
                                [&](const TaskGroup& known) { return known.name == question.group; });
      if (group == result.groups.end()) group = result.groups.insert(group, {question.group, 0, 0});
      ++group->count;
      group->right += right ? 1 : 0;
    }
    if (right) continue;
    std::string got = reply.content;
    for (const ToolCall& call : reply.calls) got += fmt::format(" {} {}", call.name, call.arguments);
    if (!reply.reasoning.empty()) got = fmt::format("({}) {}", reply.reasoning, got);
    if (!reply.complete) got += fmt::format(" (no end after {} tokens)", task.answer_tokens);
    std::string asked = question.text;
    if (asked.size() > 300) asked = "..." + asked.substr(asked.size() - 297);
    result.misses.push_back({asked, question.wanted, got});
  }
  return result;
}

}  // namespace k3::train
