// A training recipe: one TOML file, read once into plain structs. Every key is known or an error; `--set key=value`
// replaces or adds one. docs/training.md lists all keys. Paths are relative to the working directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/optimizer.h"

namespace k3::train {

struct SourceRecipe {  // [data.NAME] or [validation.NAME]
  std::string name;
  std::string kind;                // jsonl, txt, conversation, generator
  std::vector<std::string> paths;  // files; each may end in .zst
  std::string field = "text";      // jsonl: which member holds the text
  std::string generator;           // generator: its name
  std::string filler;              // generator: jsonl of books to hide things in; empty: the generator's own sentences
  std::int64_t documents = 0;      // generator: how many
  bool heldout = false;            // generator: problems that training never sees; set for [validation.NAME]
};

struct StageRecipe {  // [stage.NAME], in file order
  std::string name;
  std::int64_t tokens = 0, batch_tokens = 0, micro_batch_tokens = 0, context = 0;
  double learning_rate = 0, final_learning_rate = 0, warmup = 0.01;  // warmup: share of the stage's steps
  std::vector<std::pair<std::string, double>> mixture;               // [stage.NAME.mixture] source = share of tokens
  std::int64_t steps() const { return (tokens + batch_tokens - 1) / batch_tokens; }
  std::int64_t micro_batches() const { return batch_tokens / micro_batch_tokens; }
};

struct Recipe {
  std::filesystem::path path;
  std::uint64_t seed = 1;
  std::string tokenizer;     // folder with tiktoken.model
  std::string shards;        // folder of tokenised data; empty: beside the run
  std::string init;          // [model] init: folder with weights to continue from; empty: fresh weights
  std::string model_config;  // else the config.json made from [model]
  std::string dtype;         // float32, bfloat16; empty: bfloat16 on CUDA, float32 elsewhere
  bool quantize_experts = false;
  bool tf32 = true;  // CUDA: float32 products on tensor cores
  std::int64_t log_every = 10, checkpoint_every = 0, keep_checkpoints = 2, validate_every = 0,
               validation_tokens = 262144;
  double peak_flops = 0;  // 0: known devices only
  OptimizerOptions optimizer;
  std::vector<SourceRecipe> data, validation;
  std::vector<StageRecipe> stages;
  std::map<std::string, std::string> keys;  // everything that was set, as text: a resumed run must agree

  std::int64_t steps() const;
};

using Setting = std::pair<std::string, std::string>;  // key, value
Setting parse_setting(const std::string& text);       // "key=value"
Recipe read_recipe(const std::filesystem::path& path, const std::vector<Setting>& settings = {});

}  // namespace k3::train
