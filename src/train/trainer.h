// The training run: data, steps, balancing, validation, metrics, checkpoints. Steps are queued on the device without
// waiting for them; every `log_every` steps the numbers of the steps since then are read back at once.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/tensor.h"
#include "train/recipe.h"

namespace k3::train {

struct TrainOptions {
  std::filesystem::path run;  // folder for metrics and checkpoints
  bool resume = false;        // go on from run/checkpoints/latest
  at::Device device = at::kCPU;
  std::optional<double> max_seconds;                         // then stop with a checkpoint
  std::function<bool()> interrupted = [] { return false; };  // asked after every step
  std::function<void(const std::string& line)> print = [](const std::string&) {};
};

enum class TrainEnd { finished, interrupted, out_of_time, not_finite };

TrainEnd train(const Recipe& recipe, const TrainOptions& options);

}  // namespace k3::train
