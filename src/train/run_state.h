// RUN/checkpoints/step-N: a model folder in the published layout (config, weights, tokenizer: `k3 generate` reads it as
// it is) plus
//   optimizer.safetensors   fp32 masters, momentum and moments (Optimizer::state), router biases
//   trainer_state.json      steps done, place in the data, the recipe's keys
// Written as a whole or not at all; `latest` is a link to the newest; only the last few are kept.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "model/model.h"
#include "train/loader.h"
#include "train/optimizer.h"

namespace k3::train {

struct RunState {
  std::int64_t step = 0, tokens = 0;  // done
  double seconds = 0;
  std::string dtype;
  Cursor cursor;  // place in the mixture of the stage of step `step`; empty: at its beginning
  std::map<std::string, std::string> recipe;
  std::map<std::string, std::string> shards;  // source -> name of its shard file, which carries the hash of its content
};

std::filesystem::path save_run(const std::filesystem::path& run, const RunState& state, const Model& model,
                               const Optimizer& optimizer,
                               const std::vector<std::pair<std::string, Tensor>>& router_biases,
                               const std::filesystem::path& tokenizer, std::int64_t keep);

std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& run);
RunState read_run_state(const std::filesystem::path& checkpoint);
void load_run(const std::filesystem::path& checkpoint, const RunState& state, Optimizer& optimizer,
              const std::vector<std::pair<std::string, Tensor>>& router_biases);

// A resumed run must be the same run: a UserError names the first key that differs. Keys that only steer reporting and
// saving may.
void check_same_recipe(const RunState& state, const std::map<std::string, std::string>& recipe,
                       const std::filesystem::path& checkpoint);

}  // namespace k3::train
