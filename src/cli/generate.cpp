// k3 generate: continues a text or a list of ids. Text in gives text out, ids in give ids out; --json gives everything.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/default_model.h"
#include "cli/id_list.h"
#include "cli/interrupt.h"
#include "cli/run_stats.h"
#include "cli/stop_text.h"
#include "cli/text_input.h"
#include "model/generate.h"

namespace k3::cli {
namespace {

struct GenerateFlags {
  ModelOptions model;
  std::string prompt, file, ids;
  bool has_prompt = false, has_ids = false;
  std::int64_t max_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stops;
  std::optional<std::int64_t> logprobs;  // alternatives listed beside each token
  bool json = false, stats = false;
};

struct Generated {
  std::vector<Sampled> tokens;
  std::string text, finish = "length";
  RunStats stats;
};

std::string prompt_text(const GenerateFlags& flags) {
  return flags.has_prompt ? flags.prompt : read_input(flags.file);
}

std::vector<std::int64_t> prompt_ids(const GenerateFlags& flags, const Tokenizer* tokenizer) {
  if (flags.has_ids) return parse_ids(flags.ids, "--ids");
  const std::string text = prompt_text(flags);
  if (text.empty()) throw_user("the prompt is empty; give --prompt TEXT, --file F or --ids 1,2,3");
  const std::vector<TokenId> encoded = tokenizer->encode(text);
  return {encoded.begin(), encoded.end()};
}

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Generated run_prompt(const GenerateFlags& flags, const Model& model, const Tokenizer* tokenizer, const std::vector<std::int64_t>& ids, bool ids_out) {
  Generated result;
  StatePool pool = StatePool::make(model.config, 1, static_cast<std::int64_t>(ids.size()) + flags.max_tokens, model.device(), model.dtype());
  std::optional<StreamDecoder> decoder;
  if (tokenizer != nullptr) decoder.emplace(*tokenizer);
  StopText stop(flags.stops);
  const auto add_text = [&](const std::string& text) {
    result.text += text;
    if (!flags.json && !ids_out) show(text);
  };

  const InterruptGuard guard;
  const Stopwatch prefill_watch;
  const Tensor row = prefill(model, pool, 0, ids);
  result.stats.prompt_tokens = static_cast<std::int64_t>(ids.size());
  result.stats.prefill_seconds = prefill_watch.seconds();
  double first = 0;
  continue_slot(model, pool, 0, row, flags.sampling, flags.logprobs.value_or(0), [&](const Sampled& token) {
    const double now = seconds_since_start();
    if (result.tokens.empty()) result.stats.first_token_seconds = first = now;
    result.stats.decode_seconds = now - first;
    result.tokens.push_back(token);
    if (token.id == model.config.eos) {
      result.finish = "stop";
      return false;
    }
    if (decoder) add_text(stop.push(decoder->push(static_cast<TokenId>(token.id))));
    if (!flags.json && ids_out) show(fmt::format("{}{}", result.tokens.size() > 1 ? "," : "", token.id));
    if (stop.stopped()) result.finish = "stop_text";
    if (InterruptGuard::requested()) result.finish = "interrupted";
    return result.finish == "length" && static_cast<std::int64_t>(result.tokens.size()) < flags.max_tokens;
  });
  if (decoder) {
    add_text(stop.push(decoder->finish()));
    add_text(stop.finish());
  }
  result.stats.new_tokens = static_cast<std::int64_t>(result.tokens.size());
  return result;
}

std::string token_text(const Tokenizer* tokenizer, std::int64_t id) {
  return tokenizer == nullptr ? "" : tokenizer->token_bytes(static_cast<TokenId>(id));
}

void print_json(const GenerateFlags& flags, const Generated& result, const Tokenizer* tokenizer, const std::vector<std::int64_t>& ids) {
  nlohmann::ordered_json out;
  out["model"] = model_folder(flags.model).string();
  out["prompt_ids"] = ids;
  out["ids"] = nlohmann::json::array();
  for (const Sampled& token : result.tokens) out["ids"].push_back(token.id);
  if (tokenizer != nullptr) out["text"] = result.text;
  out["finish"] = result.finish;
  if (flags.logprobs) {
    out["logprobs"] = nlohmann::json::array();
    for (const Sampled& token : result.tokens) {
      nlohmann::ordered_json entry{{"id", token.id}, {"logprob", token.logprob}};
      if (tokenizer != nullptr) entry["token"] = token_text(tokenizer, token.id);
      entry["top"] = nlohmann::json::array();
      for (const auto& [id, logprob] : token.top) entry["top"].push_back({{"id", id}, {"logprob", logprob}});
      out["logprobs"].push_back(std::move(entry));
    }
  }
  const RunStats& stats = result.stats;
  out["stats"] = {{"prompt_tokens", stats.prompt_tokens},
                  {"new_tokens", stats.new_tokens},
                  {"prefill_tokens_per_second", stats.prefill_rate()},
                  {"decode_tokens_per_second", stats.decode_rate()},
                  {"first_token_seconds", stats.first_token_seconds},
                  {"peak_memory_bytes", peak_memory_bytes()}};
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_logprobs(const Generated& result, const Tokenizer* tokenizer) {
  const auto quoted = [&](std::int64_t id) {
    if (tokenizer == nullptr) return std::string();
    return nlohmann::json(token_text(tokenizer, id)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  for (const Sampled& token : result.tokens) {
    std::string line = fmt::format("{:>7} {:>9.4f}  {}", token.id, token.logprob, quoted(token.id));
    for (const auto& [id, logprob] : token.top) line += fmt::format("  | {} {:.4f} {}", id, logprob, quoted(id));
    fmt::print("{}\n", line);
  }
}

void generate(GenerateFlags& flags) {
  check_sampling(flags.sampling);
  for (const std::string& stop : flags.stops)
    if (stop.empty()) throw_user("--stop must not be empty");
  const auto folder = model_folder(flags.model);
  const bool ids_out = flags.has_ids;
  const ModelConfig config = read_config(folder);
  std::optional<Tokenizer> tokenizer;
  if (!ids_out || !flags.stops.empty() || has_tokenizer(folder)) tokenizer.emplace(open_tokenizer(folder, config));
  const Tokenizer* text = tokenizer ? &*tokenizer : nullptr;
  const std::vector<std::int64_t> ids = prompt_ids(flags, text);
  check_prompt(config, ids, flags.max_tokens);
  const Model model = open_model(flags.model);
  const Generated result = run_prompt(flags, model, text, ids, ids_out);
  if (flags.json) {
    print_json(flags, result, text, ids);
  } else {
    show("\n");
    if (flags.logprobs) print_logprobs(result, text);
  }
  if (flags.stats) fmt::print(stderr, "{}\n", stats_text(result.stats));
}

}  // namespace

void add_generate(CLI::App& app) {
  auto* command = app.add_subcommand("generate", "continue a text or a list of token ids");
  auto flags = std::make_shared<GenerateFlags>();
  add_model_options(*command, flags->model, true);
  auto* prompt = command->add_option("--prompt", flags->prompt, "text to continue (default: standard input)");
  auto* file = command->add_option("--file", flags->file, "file with the text to continue; - is standard input")->excludes(prompt);
  auto* ids = command->add_option("--ids", flags->ids, "token ids to continue, as 1,2,3; ids are printed too")->excludes(prompt)->excludes(file);
  command->add_option("--max-tokens", flags->max_tokens, "new tokens at most")->check(CLI::Range(1, 1 << 30))->capture_default_str();
  command->add_option("--temperature", flags->sampling.temperature, "0: always the most probable token")->capture_default_str();
  command->add_option("--top-p", flags->sampling.top_p, "sample from the smallest set of tokens with this mass")->capture_default_str();
  command->add_option("--top-k", flags->sampling.top_k, "sample from the k most probable tokens; 0: all")->capture_default_str();
  command->add_option("--min-p", flags->sampling.min_p, "drop tokens below this share of the best one's probability")->capture_default_str();
  command->add_option("--seed", flags->sampling.seed, "of the sampling; the same seed gives the same text")->capture_default_str();
  command->add_option("--stop", flags->stops, "end before this text; may be given several times")->allow_extra_args(false);
  command->add_option("--logprobs", flags->logprobs, "print each token's log-probability and this many alternatives")->check(CLI::Range(0, 1000));
  command->add_flag("--json", flags->json, "print one JSON object: ids, text, finish, logprobs, stats");
  command->add_flag("--stats", flags->stats, "print tokens/s, time to first token and peak memory on standard error");
  command->footer(
      "Examples:\n"
      "  k3 generate --prompt \"Once upon a time\"\n"
      "  k3 generate --prompt \"The sum of 2 and 3 is\" --max-tokens 8 --stop . --stats\n"
      "  k3 generate DIR --file story.txt --temperature 1 --top-p 0.95 --seed 7\n"
      "  k3 generate DIR --ids 1,2,3 --max-tokens 8\n"
      "  k3 generate --prompt Hello --logprobs 3 --json");
  command->callback([flags, prompt, ids] {
    flags->has_prompt = prompt->count() > 0;
    flags->has_ids = ids->count() > 0;
    generate(*flags);
  });
}

}  // namespace k3::cli
