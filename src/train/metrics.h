// RUN/metrics.jsonl: one JSON object a line. Steps: {"step", "stage", "loss", "bits_per_byte", "learning_rate",
// "gradient_norm", "max_violation", "tokens", "tokens_per_second", "seconds", "peak_share"}; validation: {"step",
// "validation", "loss", "bits_per_byte"}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace k3::train {

struct StepMetrics {
  std::int64_t step = 0;  // steps done, from 1
  std::string stage;
  double loss = 0;  // nats per counted token
  double bits_per_byte = 0;
  double learning_rate = 0, gradient_norm = 0;
  double max_violation = -1;  // -1: the model has no router
  std::int64_t tokens = 0;    // since the run began
  double tokens_per_second = 0, seconds = 0;
  double peak_share = 0;  // 0: peak unknown
};

struct ValidationMetrics {
  std::int64_t step = 0;
  std::string source;
  double loss = 0, bits_per_byte = 0;
};

struct RunMetrics {
  std::vector<StepMetrics> steps;
  std::vector<ValidationMetrics> validation;
};

class MetricsFile {
 public:
  // Lines of steps after `step` are dropped: they belong to work that a resumed run does again.
  MetricsFile(const std::filesystem::path& run, std::int64_t step);
  void add(const StepMetrics& metrics);
  void add(const ValidationMetrics& metrics);

 private:
  void line(const std::string& text);
  std::filesystem::path path_;
  std::ofstream file_;
};

RunMetrics read_metrics(const std::filesystem::path& run);

}  // namespace k3::train
