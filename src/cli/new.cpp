// k3 new: a random checkpoint of any size in the published layout, for tests and benchmarks.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/published.h"
#include "checkpoint/random_checkpoint.h"
#include "cli/commands.h"
#include "cli/progress.h"

namespace k3::cli {
namespace {

struct NewOptions {
  std::string like, config, out;
  std::vector<std::string> settings;
  std::uint64_t seed = 0;
  bool no_vision = false;
  double shard_gb = 5.0;
};

ModelConfig wanted_config(const NewOptions& options) {
  if (options.like.empty() == options.config.empty()) throw_user("k3 new: give either --like or --config");
  ModelConfig config;
  if (options.like == "kimi-k3") config = kimi_k3_config();
  else if (options.like == "kimi-linear") config = kimi_linear_48b_config();
  else config = read_config(options.config);
  const std::string text = with_settings(write_config(config), options.settings);
  config = parse_config(text, options.settings.empty() ? "config" : "config with --set");
  if (options.no_vision) config.vision.reset();
  return config;
}

void create(const NewOptions& options) {
  if (options.shard_gb < 0.001) throw_user("--shard-gb {}: must be at least 0.001", options.shard_gb);
  const ModelConfig config = wanted_config(options);
  const TensorTotals totals = count_tensors(config, expected_tensors(config));
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressLine progress("writing");
    write_random_checkpoint(config, options.out,
                            {.seed = options.seed,
                             .max_shard_bytes = static_cast<std::int64_t>(options.shard_gb * 1e9),
                             .progress = std::ref(progress)});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: {} tensors, {} parameters, {:.3f} GB in {:.1f} s\n", options.out, totals.tensors, totals.parameters,
             static_cast<double>(totals.bytes) * 1e-9, seconds);
}

}  // namespace

void add_new(CLI::App& app) {
  const auto options = std::make_shared<NewOptions>();
  CLI::App* command = app.add_subcommand("new", "write a random checkpoint of any size in the published layout");
  command->add_option("--like", options->like, "published architecture to start from: kimi-k3 or kimi-linear (the 48B)")
      ->check(CLI::IsMember({"kimi-k3", "kimi-linear"}));
  command->add_option("--config", options->config, "or: a config.json to start from");
  command->add_option("--set", options->settings, "key=value of config.json, dotted when nested; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--seed", options->seed, "the same seed gives the same bytes (default 0)");
  command->add_flag("--no-vision", options->no_vision, "leave the vision tower and the projector out");
  command->add_option("--shard-gb", options->shard_gb, "largest file, in GB (default 5)");
  command->add_option("OUT", options->out, "folder to make")->required();
  command->footer(
      "Examples:\n"
      "  k3 new --like kimi-linear --set num_hidden_layers=4 --set num_experts=16 OUT\n"
      "  k3 new --like kimi-k3 --no-vision --set num_hidden_layers=8 --set hidden_size=512 --set num_experts=32 \\\n"
      "    --set vocab_size=4096 --set intermediate_size=1024 --set linear_attn_config.num_heads=4 \\\n"
      "    --set num_attention_heads=4 --set moe_intermediate_size=256 --set routed_expert_hidden_size=256 OUT\n"
      "  k3 new --config models/nano/config.json --seed 7 OUT      the shape of a model you have\n"
      "  k3 new --like kimi-k3 --set quantization_config=null ...  experts in BF16 instead of MXFP4\n"
      "Values: normal with initializer_range, norms 1, decay parameters and convolutions as a training starts with "
      "them. AttnRes\n"
      "pseudo-queries and router biases are small random numbers, where a training starts with zeros, so that tests "
      "exercise them.\n"
      "When num_hidden_layers is set, layers follow the published pattern: three KDA, one MLA, the last one MLA. Token "
      "ids keep their\n"
      "distance from the end of the vocabulary. No tokenizer is written. Memory needed: 64 MB, whatever the size.");
  command->callback([options] { create(*options); });
}

}  // namespace k3::cli
