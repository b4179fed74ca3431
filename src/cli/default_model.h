// Which model a command runs, on what and in which precision: the flags --model, --device, --dtype, --threads, the same everywhere.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "model/model.h"
#include "text/tokenizer.h"

namespace k3::cli {

struct ModelOptions {
  std::string model;               // empty: K3_MODEL, then models/nano of the checkout
  std::string device = "auto";     // auto: a GPU when there is one
  std::string dtype = "auto";      // of weights and activations; precision islands stay wider
  int threads = 0;                 // 0: one a core, fewer for a small model
};

// positional: the command also takes MODEL as its first argument.
void add_model_options(CLI::App& command, ModelOptions& options, bool positional);

std::filesystem::path model_folder(const ModelOptions& options);  // UserError when it is not there
LoadOptions load_options(const ModelOptions& options);            // also sets the number of threads
Model open_model(const ModelOptions& options);
bool has_tokenizer(const std::filesystem::path& folder);
Tokenizer open_tokenizer(const std::filesystem::path& folder, const ModelConfig& config);  // UserError when its ids exceed the model's

}  // namespace k3::cli
