// k3 eval: a model on held-out problems and on text, as a table and as JSON.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/default_model.h"
#include "train/tasks/evaluate.h"
#include "train/text_source.h"

namespace k3::cli {

namespace {

using Json = nlohmann::ordered_json;

struct EvalFlags {
  ModelOptions model;
  std::string task, data, json_file;
  train::TaskOptions options;
  std::int64_t count = -1, length = 0;  // count -1: the default of the task
  int misses = 3;
};

// One line on standard error, when that is a terminal: done, total, time left.
class EvalProgress {
 public:
  void show(std::int64_t done, std::int64_t total) {
    if (!terminal_) return;
    const double seconds = elapsed();
    const double left = done > 0 ? seconds / static_cast<double>(done) * static_cast<double>(total - done) : 0;
    const auto filled = static_cast<std::size_t>(total > 0 ? 30 * done / total : 0);
    fmt::print(stderr, "\r[{:<30}] {}/{}  {:.0f} s, {:.0f} s left  ", std::string(filled, '='), done, total, seconds,
               left);
  }
  void clear() const {
    if (terminal_) fmt::print(stderr, "\r{:78}\r", "");
  }
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool terminal_ = isatty(STDERR_FILENO) == 1;
};

Json run_loss(const EvalFlags& flags, const Model& model, const Tokenizer& tokenizer) {
  if (flags.data.empty())
    throw_user("--task loss wants --data FILE: a jsonl with a field \"text\" or a txt, plain or .zst");
  train::LossOptions options;
  if (flags.length > 0) options.length = flags.length;
  if (flags.count >= 0) options.windows = flags.count;
  if (options.length > model.config.max_context)
    throw_user("--length {} exceeds the context of the model ({})", options.length, model.config.max_context);
  EvalProgress line;
  const train::LossResult result = train::evaluate_loss(
      model, tokenizer, flags.data, options, [&](std::int64_t done, std::int64_t total) { line.show(done, total); });
  line.clear();
  fmt::print("task           loss on {}\n", flags.data);
  fmt::print("windows        {} of {} tokens, {} documents\n", result.windows, options.length, result.documents);
  fmt::print("tokens, bytes  {}, {}\n", result.tokens, result.bytes);
  fmt::print("nats / token   {:.4f}\n", result.nats);
  fmt::print("bits / byte    {:.4f}\n", result.bits_per_byte);
  fmt::print("seconds        {:.1f}\n", line.elapsed());
  return {{"task", "loss"},
          {"data", flags.data},
          {"windows", result.windows},
          {"window_tokens", options.length},
          {"tokens", result.tokens},
          {"bytes", result.bytes},
          {"nats_per_token", result.nats},
          {"bits_per_byte", result.bits_per_byte},
          {"seconds", line.elapsed()}};
}

std::string one_line(std::string text) {
  for (char& byte : text)
    if (byte == '\n') byte = ' ';
  return text;
}

Json run_task(const EvalFlags& flags, const Model& model, const Tokenizer& tokenizer) {
  train::TaskOptions options = flags.options;
  options.task = flags.task;
  const bool passkey = flags.task == "passkey";
  if (flags.count == 0) throw_user("--count 0 (all of the text) is for the task loss");
  options.count = flags.count > 0 ? flags.count : passkey ? 50 : 200;
  options.length = flags.length > 0 ? flags.length : std::min<std::int64_t>(4096, model.config.max_context);
  if (!passkey && flags.length > 0) throw_user("--length is for the tasks passkey and loss");
  if (!flags.data.empty()) {
    if (!passkey) throw_user("--data is for the tasks loss and passkey; {} makes its own problems", flags.task);
    options.filler = std::make_shared<const train::Filler>(train::make_filler(train::read_documents(flags.data)));
  }
  EvalProgress line;
  const train::TaskResult result =
      train::evaluate_task(model, tokenizer, options, [&](std::int64_t done) { line.show(done, options.count); });
  line.clear();
  const double seconds = line.elapsed();
  fmt::print("{:<16} {:>7} {:>7} {:>9}\n", flags.task, "right", "of", "accuracy");
  train::TaskGroup rare{"other kinds", 0, 0};  // kinds of less than a twentieth share a row; the JSON has them all
  const auto print_group = [](const train::TaskGroup& group) {
    fmt::print("  {:<14} {:>7} {:>7} {:>8.1f}%\n", group.name, group.right, group.count,
               100.0 * static_cast<double>(group.right) / static_cast<double>(group.count));
  };
  for (const train::TaskGroup& group : result.groups) {
    if (group.count * 20 >= result.count) {
      print_group(group);
    } else {
      rare.count += group.count;
      rare.right += group.right;
    }
  }
  if (rare.count > 0) print_group(rare);
  fmt::print("{:<16} {:>7} {:>7} {:>8.1f}%\n", "all", result.right, result.count, 100.0 * result.accuracy());
  fmt::print("effort {}, seed {}, {} tokens written, {:.1f} s\n", options.effort, options.seed, result.tokens, seconds);
  for (std::size_t at = 0; at < result.misses.size() && at < static_cast<std::size_t>(flags.misses); ++at) {
    const train::TaskMiss& miss = result.misses[at];
    fmt::print("\nmissed: {}\n  wanted {}\n  got    {}\n", one_line(miss.question), miss.wanted, one_line(miss.got));
  }
  Json out = {{"task", flags.task},       {"count", result.count},
              {"right", result.right},    {"accuracy", result.accuracy()},
              {"effort", options.effort}, {"seed", options.seed}};
  if (passkey) out["length"] = options.length;
  out["groups"] = Json::object();
  for (const train::TaskGroup& group : result.groups)
    out["groups"][group.name] = {{"count", group.count}, {"right", group.right}};
  out["tokens_written"] = result.tokens;
  out["seconds"] = seconds;
  out["misses"] = Json::array();
  for (const train::TaskMiss& miss : result.misses)
    out["misses"].push_back({{"question", miss.question}, {"wanted", miss.wanted}, {"got", miss.got}});
  return out;
}

void evaluate(const EvalFlags& flags) {
  const std::filesystem::path folder = model_folder(flags.model);
  const Model model = load_model(folder, load_options(flags.model));
  const Tokenizer tokenizer = open_tokenizer(folder, model.config);
  Json out = flags.task == "loss" ? run_loss(flags, model, tokenizer) : run_task(flags, model, tokenizer);
  out["model"] = folder.string();
  if (!flags.json_file.empty()) {
    const std::string text = out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    if (flags.json_file == "-")
      fmt::print("{}", text);
    else
      write_file_atomic(flags.json_file, text);
  }
}

}  // namespace

void add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  auto* command = app.add_subcommand("eval", "measure a model on held-out problems and on text");
  add_model_options(*command, flags->model, true);
  std::vector<std::string> names = {"loss"};
  std::string about = "loss: nats per token and bits per byte of --data";
  for (const train::GeneratorName& task : train::task_names()) {
    names.push_back(task.name);
    about += "; " + task.name + ": " + task.summary;
  }
  command->add_option("--task", flags->task, about)->required()->check(CLI::IsMember(names));
  command->add_option("--data", flags->data, "loss: text to measure; passkey: jsonl of books to hide the key in")
      ->type_name("FILE");
  command
      ->add_option("--count", flags->count,
                   "problems (default 200; passkey 50), or windows of text (default 200; 0: all of it)")
      ->check(CLI::Range(0, 1 << 24));
  command->add_option("--length", flags->length, "tokens of a passkey problem (4096) or of a window of text (1024)")
      ->check(CLI::Range(256, 1 << 24));
  command->add_option("--effort", flags->options.effort, "how much the model thinks")
      ->check(CLI::IsMember({"off", "low", "high", "max"}))
      ->capture_default_str();
  command->add_option("--seed", flags->options.seed, "of the problems")->capture_default_str();
  command->add_option("--slots", flags->options.slots, "sequences decoded together")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--misses", flags->misses, "wrong answers to show")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option("--json", flags->json_file, "also write the result as JSON; - is standard output")
      ->type_name("FILE");
  command->footer(
      "Answers are greedy and judged strictly: the reply must end, its response must hold the number (the last one "
      "counts) or the key, a call must have\n"
      "the exact name and arguments.\n"
      "Examples:\n"
      "  k3 eval --task arithmetic                             two-digit sums and differences that training never saw\n"
      "  k3 eval --task wordproblems --effort low --count 500\n"
      "  k3 eval --task passkey --length 4096 --json passkey.json\n"
      "  k3 eval my-model --task loss --data books-valid.jsonl.zst");
  command->callback([flags] { evaluate(*flags); });
}

}  // namespace k3::cli
