#include "train/metrics.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "train/text_source.h"

namespace k3::train {
namespace {

using nlohmann::json;

std::filesystem::path metrics_path(const std::filesystem::path& run) { return run / "metrics.jsonl"; }

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& run, std::int64_t step) : path_(metrics_path(run)) {
  std::string kept;
  if (std::filesystem::exists(path_)) {
    for_each_line(path_, [&](const std::string& text, std::int64_t) {
      const json object = json::parse(text, nullptr, false);  // a line cut short by a crash does not parse and goes
      if (object.is_object() && object.value("step", std::int64_t{0}) <= step) kept += text + "\n";
    });
  }
  write_file_atomic(path_, kept);
  file_.open(path_, std::ios::app);
  if (!file_) throw_user("{}: cannot be written", path_.string());
}

void MetricsFile::line(const std::string& text) {
  file_ << text << '\n';
  file_.flush();
  if (!file_) throw_user("{}: writing failed; free some space", path_.string());
}

void MetricsFile::add(const StepMetrics& metrics) {
  json object = {{"step", metrics.step},
                 {"stage", metrics.stage},
                 {"loss", metrics.loss},
                 {"bits_per_byte", metrics.bits_per_byte},
                 {"learning_rate", metrics.learning_rate},
                 {"gradient_norm", metrics.gradient_norm},
                 {"tokens", metrics.tokens},
                 {"tokens_per_second", metrics.tokens_per_second},
                 {"seconds", metrics.seconds}};
  if (metrics.max_violation >= 0) object["max_violation"] = metrics.max_violation;
  if (metrics.peak_share > 0) object["peak_share"] = metrics.peak_share;
  line(object.dump());
}

void MetricsFile::add(const ValidationMetrics& metrics) {
  line(json{{"step", metrics.step},
            {"validation", metrics.source},
            {"loss", metrics.loss},
            {"bits_per_byte", metrics.bits_per_byte}}
           .dump());
}

RunMetrics read_metrics(const std::filesystem::path& run) {
  RunMetrics metrics;
  const std::filesystem::path path = metrics_path(run);
  for_each_line(path, [&](const std::string& text, std::int64_t number) {
    const json object = json::parse(text, nullptr, false);
    try {
      if (object.contains("validation")) {
        metrics.validation.push_back(
            {object.at("step"), object.at("validation"), object.at("loss"), object.at("bits_per_byte")});
        return;
      }
      StepMetrics step;
      step.step = object.at("step");
      step.stage = object.at("stage");
      step.loss = object.at("loss");
      step.bits_per_byte = object.value("bits_per_byte", 0.0);
      step.learning_rate = object.at("learning_rate");
      step.gradient_norm = object.at("gradient_norm");
      step.max_violation = object.value("max_violation", -1.0);
      step.tokens = object.at("tokens");
      step.tokens_per_second = object.value("tokens_per_second", 0.0);
      step.seconds = object.value("seconds", 0.0);
      step.peak_share = object.value("peak_share", 0.0);
      metrics.steps.push_back(step);
    } catch (const json::exception&) {
      throw_user("{}: line {} is no line of metrics; remove it", path.string(), number);
    }
  });
  return metrics;
}

}  // namespace k3::train
