// k3 inspect: the architecture, parameters, bytes and caches of a model, from its files or from its config alone.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "checkpoint/summary.h"
#include "cli/commands.h"

namespace k3::cli {
namespace {

struct InspectOptions {
  std::string model, config;
  bool json = false;
};

void inspect(const InspectOptions& options) {
  if (options.model.empty() == options.config.empty())
    throw_user("k3 inspect: give either a model folder or --config FILE");
  const std::filesystem::path path = options.model.empty() ? options.config : options.model;
  if (!options.model.empty() && !std::filesystem::is_directory(path))
    throw_user("{}: is not a folder; give the folder of a model, or a config.json with --config", path.string());
  const ModelConfig config = read_config(path);
  std::optional<Checkpoint> checkpoint;
  if (!options.model.empty()) checkpoint.emplace(open_checkpoint(config, path));
  const Summary summary = summarize(config, checkpoint ? &*checkpoint : nullptr);
  fmt::print("{}", options.json ? summary_json(config, summary) : summary_text(config, summary, path.string()));
}

}  // namespace

void add_inspect(CLI::App& app) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "architecture, parameters, bytes and cache sizes of a model");
  command->add_option("MODEL", options->model,
                      "folder with config.json and safetensors; every tensor is checked against the config");
  command->add_option("--config", options->config, "a config.json alone, without weights");
  command->add_flag("--json", options->json, "the numbers as JSON");
  command->footer(
      "Examples:\n"
      "  k3 inspect ~/Kimi-Linear-48B-A3B-Instruct            checks the files and sums them up\n"
      "  k3 inspect --config configs/kimi-k3.json             what is inside Kimi K3\n"
      "  k3 inspect --config configs/kimi-k3.json --json | jq .active_parameters\n"
      "Active parameters are those read for one text token: all but the embedding table, the vision tower and the "
      "experts not chosen.");
  command->callback([options] { inspect(*options); });
}

}  // namespace k3::cli
