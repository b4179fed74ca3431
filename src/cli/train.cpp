// k3 train: trains a model from a recipe.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/tensor.h"
#include "cli/commands.h"
#include "train/trainer.h"

namespace k3::cli {
namespace {

constexpr const char* kTrainExamples =
    "Examples:\n"
    "  k3 train recipes/tiny.toml                                    seconds on a CPU, to see everything work\n"
    "  k3 train recipes/nano.toml --out runs/nano --device cuda      the bundled model\n"
    "  k3 train recipes/nano.toml --set stage.pretrain.tokens=1e7    the same recipe with one key changed\n"
    "  k3 train recipes/nano.toml --resume --max-seconds 600         ten more minutes of a run, then a checkpoint\n"
    "  k3 plot runs/nano                                             the curves as a picture\n"
    "Ctrl-C finishes the step, writes a checkpoint and exits with 130. Keys of a recipe: docs/training.md";

std::atomic<bool> g_interrupted{false};

void on_signal(int number) {
  g_interrupted = true;
  std::signal(number, SIG_DFL);  // a second signal ends the program at once
}

struct TrainArguments {
  std::string recipe, out, device, dtype;
  std::vector<std::string> settings;
  bool resume = false;
  double max_seconds = 0;
};

at::Device device_of(const std::string& name) {
  if (name.empty()) return at::hasCUDA() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  if (name == "cpu") return at::kCPU;
  if (!at::hasCUDA()) throw_user("--device {}: no CUDA device is there; use --device cpu", name);
  return at::Device(at::kCUDA, 0);
}

void train_recipe(const TrainArguments& arguments) {
  std::vector<train::Setting> settings;
  for (const std::string& setting : arguments.settings) settings.push_back(train::parse_setting(setting));
  if (!arguments.dtype.empty()) settings.emplace_back("train.dtype", arguments.dtype);
  const train::Recipe recipe = train::read_recipe(arguments.recipe, settings);

  train::TrainOptions options;
  options.run = arguments.out.empty() ? std::filesystem::path("runs") / std::filesystem::path(arguments.recipe).stem()
                                      : std::filesystem::path(arguments.out);
  options.resume = arguments.resume;
  options.device = device_of(arguments.device);
  if (arguments.max_seconds > 0) options.max_seconds = arguments.max_seconds;
  options.interrupted = [] { return g_interrupted.load(); };
  options.print = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  switch (train::train(recipe, options)) {
    case train::TrainEnd::interrupted:
      throw CLI::RuntimeError(130);
    case train::TrainEnd::not_finite:
      throw CLI::RuntimeError(1);
    case train::TrainEnd::finished:
    case train::TrainEnd::out_of_time:
      return;
  }
}

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "train a model from a recipe");
  command->add_option("recipe", arguments->recipe, "TOML file")->required();
  command
      ->add_option("--set", arguments->settings, "key=value: replaces or adds one key of the recipe; may be repeated")
      ->expected(1)
      ->take_all();
  command->add_option("--out", arguments->out, "folder for checkpoints and metrics (default: runs/NAME of the recipe)");
  command->add_flag("--resume", arguments->resume, "go on from the last checkpoint in the folder");
  command->add_option("--device", arguments->device, "cpu or cuda (default: cuda when there)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--dtype", arguments->dtype, "float32 or bfloat16 (default: bfloat16 on cuda, float32 on cpu)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command->add_option("--max-seconds", arguments->max_seconds, "stop with a checkpoint after so many seconds")
      ->check(CLI::PositiveNumber);
  command->footer(kTrainExamples);
  command->callback([arguments] { train_recipe(*arguments); });
}

}  // namespace k3::cli
