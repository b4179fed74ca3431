// Held-out evaluation of a model: problems of the generators that training never sees, answered greedily in one batch,
// and the loss on text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "text/tokenizer.h"
#include "train/tasks/generator.h"

namespace k3::train {

struct TaskOptions {
  std::string task;             // a name of task_names()
  std::string effort = "high";  // off, low, high, max
  std::int64_t count = 200;
  std::int64_t length = 4096;  // passkey: tokens of prompt and answer together
  std::uint64_t seed = 1;
  std::int64_t slots = 32;                         // sequences decoded together
  std::shared_ptr<const Filler> filler = nullptr;  // passkey: prose to hide keys in
};

struct TaskMiss {
  std::string question, wanted, got;  // got: the reply, or why there is none
};

struct TaskGroup {
  std::string name;  // "sums", "differences", ...
  std::int64_t count = 0, right = 0;
};

struct TaskResult {
  std::int64_t count = 0, right = 0, tokens = 0;  // tokens: written by the model
  std::vector<TaskGroup> groups;
  std::vector<TaskMiss> misses;
  double accuracy() const { return count == 0 ? 0.0 : static_cast<double>(right) / static_cast<double>(count); }
};

// The tasks and what they ask, for help and messages.
std::vector<GeneratorName> task_names();

// `progress` gets the number of answered problems.
TaskResult evaluate_task(const Model& model, const Tokenizer& tokenizer, const TaskOptions& options,
                         const std::function<void(std::int64_t)>& progress = {});

struct LossOptions {
  std::int64_t length = 1024;  // tokens of a window; each window starts from nothing
  std::int64_t windows = 200;  // spread evenly over the file; 0: all of it
};

struct LossResult {
  std::int64_t documents = 0, windows = 0, tokens = 0, bytes = 0;  // tokens predicted, and their bytes
  double nats = 0;                                                 // mean per token
  double bits_per_byte = 0;
};

// path: jsonl with a field "text" (one document a line) or txt (one document); each may end in .zst.
LossResult evaluate_loss(const Model& model, const Tokenizer& tokenizer, const std::filesystem::path& path,
                         const LossOptions& options,
                         const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace k3::train
