#include "train/flops.h"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace k3::train {

double matrix_parameters(Model& model) {
  const MoeConfig& moe = model.config.moe;
  double active = 0;
  for (const auto& [name, tensor] : named_tensors(model)) {
    if (tensor->dim() < 2 || name.find("embed_tokens") != std::string::npos) continue;
    const auto elements = static_cast<double>(tensor->numel());
    active += tensor->dim() == 3
                  ? elements * static_cast<double>(moe.experts_per_token) / static_cast<double>(moe.experts)
                  : elements;
  }
  if (model.config.tied_embeddings) active += static_cast<double>(model.embedding.numel());
  return active;
}

double step_flops(const ModelConfig& config, double matrix_parameters, std::span<const std::int64_t> row_starts) {
  const auto tokens = static_cast<double>(row_starts.back());
  double pairs = 0;  // (query, key) pairs of the causal halves
  for (std::size_t row = 1; row < row_starts.size(); ++row) {
    const auto length = static_cast<double>(row_starts[row] - row_starts[row - 1]);
    pairs += length * (length + 1) / 2;
  }
  const double mla =
      2.0 * static_cast<double>(config.mla.heads * (config.mla.query_dim() + config.mla.value_dim)) * pairs;
  const double kda = 6.0 * static_cast<double>(config.kda.heads * config.kda.head_dim * config.kda.head_dim) * tokens;
  return 3.0 * (2.0 * matrix_parameters * tokens + mla * static_cast<double>(config.mla_layers()) +
                kda * static_cast<double>(config.kda_layers()));
}

double known_peak_flops(at::Device device) {
  if (!device.is_cuda()) return 0;
  std::error_code error;
  double peak = 0;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    std::ifstream file(gpu.path() / "information");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const bool hopper = text.find("H200") != std::string::npos || text.find("H100") != std::string::npos;
    if (!hopper || text.find("PCIe") != std::string::npos) return 0;
    peak = 989e12;
  }
  return peak;
}

}  // namespace k3::train
