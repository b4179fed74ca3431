// k3 chat: one question, a conversation in a terminal, or one turn a line from a pipe. On a terminal thinking is shown dimmed; in a pipe
// only the answer is printed.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "cli/chat_session.h"
#include "cli/commands.h"
#include "cli/default_model.h"
#include "cli/interrupt.h"
#include "cli/text_input.h"

namespace k3::cli {
namespace {

struct ChatFlags {
  ModelOptions model;
  std::string text, effort, thinking = "auto";
  bool stats = false;
  ChatSettings settings;
};

constexpr const char* kHelp =
    "Type a question and press Enter. Ctrl-C stops an answer, Ctrl-D or /quit ends.\n"
    "  /reset      forget the conversation\n"
    "  /save FILE  write it as JSON (k3 render reads it)\n"
    "  /help       this list\n";

// Prints the answer while it comes.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool show_thinking) : colour_(isatty(STDOUT_FILENO) != 0), show_thinking_(show_thinking) {}
  void show(const XtmlEvent& event) {
    using Kind = XtmlEvent::Kind;
    switch (event.kind) {
      case Kind::reasoning:
        reasoning_ += event.text;
        if (show_thinking_) print(Part::thinking, event.text);
        break;
      case Kind::content: print(Part::answer, event.text); break;
      case Kind::reasoning_is_content:
        if (!show_thinking_) print(Part::answer, reasoning_);
        break;
      case Kind::call_begin: print(Part::answer, fmt::format("\n[calls {}]", event.text)); break;
      case Kind::argument_begin: print(Part::answer, fmt::format("\n  {} = ", event.key)); break;
      case Kind::argument: print(Part::answer, event.text); break;
      default: break;
    }
  }
  void finish() {
    change(Part::none);
    write("\n");
  }

 private:
  enum class Part { none, thinking, answer };
  void change(Part next) {
    if (next == part_) return;
    if (part_ == Part::thinking) write(colour_ ? "\x1b[0m" : "");
    if (part_ == Part::thinking && next == Part::answer) write("\n\n");
    if (next == Part::thinking) write(colour_ ? "\x1b[2m" : "");
    part_ = next;
  }
  void print(Part part, const std::string& text) {
    change(part);
    write(text);
  }
  static void write(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  bool colour_, show_thinking_;
  Part part_ = Part::none;
  std::string reasoning_;
};

void answer(ChatSession& session, const ChatFlags& flags, const std::string& text, bool first) {
  InterruptGuard::forget();
  const bool show_thinking = flags.thinking == "show" || (flags.thinking == "auto" && isatty(STDOUT_FILENO) != 0);
  AnswerPrinter printer(show_thinking);
  ChatTurn turn = session.ask(text, [&](const XtmlEvent& event) { printer.show(event); }, InterruptGuard::requested);
  printer.finish();
  if (!turn.complete)
    fmt::print(stderr, "k3: {}\n", InterruptGuard::requested() ? "stopped" : "the answer was cut; --max-tokens and --context allow more");
  if (first) turn.stats.first_token_seconds = seconds_since_start() - (turn.stats.decode_seconds);
  if (flags.stats) fmt::print(stderr, "{}{}\n", stats_text(turn.stats), turn.read_again ? " | the history was read again" : "");
}

// A line of standard input without its end; false at the end of the input or at Ctrl-C (errno EINTR).
bool read_line(std::string& line) {
  line.clear();
  errno = 0;
  for (int byte; (byte = std::getc(stdin)) != EOF;) {
    if (byte == '\n') return true;
    line.push_back(static_cast<char>(byte));
  }
  if (errno == EINTR) {
    std::clearerr(stdin);
    line.clear();
    return false;
  }
  return !line.empty();
}

bool handled_command(ChatSession& session, const std::string& line) {
  if (line == "/help") fmt::print("{}", kHelp);
  else if (line == "/reset") session.reset();
  else if (line.rfind("/save", 0) == 0) {
    const std::size_t name = line.find_first_not_of(' ', 5);
    if (name == std::string::npos || name == 5) throw_user("/save needs a file name: /save talk.json");
    write_file_atomic(line.substr(name), session.json());
    fmt::print(stderr, "k3: saved in {}\n", line.substr(name));
  } else if (line.rfind("/", 0) == 0 && line.find(' ') == std::string::npos && line.find('/', 1) == std::string::npos)
    throw_user("there is no command {}; /help lists them", line);
  else
    return false;
  return true;
}

void converse(ChatSession& session, const ChatFlags& flags) {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) fmt::print("{}", kHelp);
  bool first = true;
  for (std::string line;;) {
    if (terminal) fmt::print("\n> "), std::fflush(stdout);
    if (!read_line(line)) {
      if (errno != EINTR) break;
      if (!terminal) break;
      fmt::print("\n(Ctrl-D ends)");
      continue;
    }
    if (line == "/quit" || line == "/exit") break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      if (handled_command(session, line)) continue;
      answer(session, flags, line, first && !terminal);
      first = false;
    } catch (const UserError& error) {
      if (!terminal) throw;
      fmt::print(stderr, "k3: {}\n", error.what());
    }
  }
  if (terminal) fmt::print("\n");
}

// What the model's makers recommend, where the checkpoint says so.
void read_recommended_sampling(const std::filesystem::path& folder, const CLI::App& command, SamplingOptions& sampling) {
  const auto file = folder / "generation_config.json";
  if (!std::filesystem::exists(file)) return;
  const nlohmann::json config = nlohmann::json::parse(read_file(file), nullptr, false);
  if (!config.is_object()) throw_user("{}: is not a JSON object; repair or remove it", file.string());
  const auto number = [&](const char* key, const char* flag, auto& value) {
    if (command.get_option(flag)->count() > 0 || !config.contains(key) || config[key].is_null()) return;
    if (!config[key].is_number()) throw_user("{}: {} is not a number", file.string(), key);
    value = config[key].get<std::remove_reference_t<decltype(value)>>();
  };
  if (config.contains("do_sample") && config["do_sample"] == false) return;
  number("temperature", "--temperature", sampling.temperature);
  number("top_p", "--top-p", sampling.top_p);
  number("top_k", "--top-k", sampling.top_k);
  number("min_p", "--min-p", sampling.min_p);
}

void chat(ChatFlags& flags, const CLI::App& command) {
  const auto folder = model_folder(flags.model);
  read_recommended_sampling(folder, command, flags.settings.sampling);
  check_sampling(flags.settings.sampling);
  flags.settings.thinking = flags.effort != "off";
  if (!flags.effort.empty() && flags.effort != "off") flags.settings.effort = flags.effort;
  const ModelConfig config = read_config(folder);
  const Tokenizer tokenizer = open_tokenizer(folder, config);
  if (flags.settings.context_tokens == 0) flags.settings.context_tokens = std::min<std::int64_t>(config.max_context, 32768);
  if (flags.settings.context_tokens > config.max_context)
    throw_user("--context {} is more than the model's context of {}", flags.settings.context_tokens, config.max_context);
  const InterruptGuard guard;
  const Model model = open_model(flags.model);
  ChatSession session(model, tokenizer, flags.settings);
  if (!flags.text.empty()) answer(session, flags, flags.text == "-" ? read_input("-") : flags.text, true);
  else converse(session, flags);
}

}  // namespace

void add_chat(CLI::App& app) {
  auto* command = app.add_subcommand("chat", "ask one question or hold a conversation");
  auto flags = std::make_shared<ChatFlags>();
  command->add_option("TEXT", flags->text, "one question; - reads it from standard input; without it a conversation begins");
  add_model_options(*command, flags->model, false);
  command->add_option("--system", flags->settings.system, "instructions that stand before the conversation");
  command->add_option("--effort", flags->effort, "how much to think: low, high, max or off (default: max)")
      ->check(CLI::IsMember({"low", "high", "max", "off"}));
  command->add_option("--thinking", flags->thinking, "show or hide the thinking; auto: shown on a terminal")
      ->check(CLI::IsMember({"auto", "show", "hide"}))
      ->capture_default_str();
  command->add_option("--max-tokens", flags->settings.max_tokens, "of one answer, thinking included")->check(CLI::Range(1, 1 << 30))->capture_default_str();
  command->add_option("--context", flags->settings.context_tokens, "tokens that the conversation may hold (default: the model's, at most 32768)")
      ->check(CLI::Range(1, 1 << 30));
  command->add_option("--temperature", flags->settings.sampling.temperature, "0: always the most probable token (default: generation_config.json, else 0)");
  command->add_option("--top-p", flags->settings.sampling.top_p, "sample from the smallest set of tokens with this mass");
  command->add_option("--top-k", flags->settings.sampling.top_k, "sample from the k most probable tokens; 0: all");
  command->add_option("--min-p", flags->settings.sampling.min_p, "drop tokens below this share of the best one's probability");
  command->add_option("--seed", flags->settings.sampling.seed, "of the sampling")->capture_default_str();
  command->add_flag("--stats", flags->stats, "print tokens/s and time to first token after each answer, on standard error");
  command->footer(
      "Examples:\n"
      "  k3 chat \"What is 17 + 25?\"\n"
      "  k3 chat                                        a conversation; /help lists its commands\n"
      "  k3 chat --effort low --system \"Be brief.\" \"Sort 9, 4 and 7.\"\n"
      "  k3 chat - < question.txt > answer.txt\n"
      "  printf 'My name is Tom.\\nWhat is my name?\\n' | k3 chat   one turn a line\n"
      "  k3 chat --model ~/Kimi-K3 --temperature 1 --top-p 0.95");
  command->callback([flags, command] { chat(*flags, *command); });
}

}  // namespace k3::cli
