// Fresh weights for training (training.md 1.8): N(0, initializer_range), norms 1, pseudo-queries exactly 0, router bias 0,
// A_log 0 with a bounded gate and log U(1, 16) without, dt_bias the inverse softplus of a log-uniform step, taps uniform +-taps^-1/2.
#include <cmath>

#include "base/error.h"
#include "model/model.h"
#include "model/visit.h"

namespace k3 {
namespace {

Tensor dt_bias(const std::vector<std::int64_t>& shape, const at::TensorOptions& options, at::Generator& generator) {
  const double low = std::log(0.001), high = std::log(0.1);
  const Tensor step = at::exp(at::rand(shape, generator, options) * (high - low) + low).clamp_min(1e-4);
  return step + at::log(-at::expm1(-step));
}

Tensor initial(const Slot& slot, const ModelConfig& config, at::Generator& generator) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  switch (slot.init) {
    case Init::ones: return at::ones(slot.shape, options);
    case Init::zeros: return at::zeros(slot.shape, options);
    case Init::conv: {
      const double bound = 1.0 / std::sqrt(static_cast<double>(config.kda.conv_taps));
      return (at::rand(slot.shape, generator, options) * 2 - 1) * bound;
    }
    case Init::a_log:
      if (config.kda.gate_lower_bound) return at::zeros(slot.shape, options);
      return at::log(at::rand(slot.shape, generator, options) * 15 + 1);
    case Init::dt_bias: return dt_bias(slot.shape, options, generator);
    case Init::normal: return at::randn(slot.shape, generator, options) * config.initializer_range;
  }
  K3_CHECK(false, "no initialisation for {}", slot.name);
}

}  // namespace

Model random_model(const ModelConfig& config, const LoadOptions& options, std::uint64_t seed) {
  Model model;
  model.config = config;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  const at::ScalarType island = options.dtype == at::kDouble ? at::kDouble : at::kFloat;
  visit_tensors(model, [&](const Slot& slot) {
    const Tensor value = initial(slot, config, generator).to(at::TensorOptions().dtype(slot.island ? island : options.dtype).device(options.device));
    if (slot.experts != nullptr) slot.experts->weight = value;
    else *slot.tensor = value;
  });
  if (config.tied_embeddings) model.head = model.embedding;
  return model;
}

std::vector<std::pair<std::string, Tensor*>> named_tensors(Model& model) {
  std::vector<std::pair<std::string, Tensor*>> named;
  visit_tensors(model, [&](const Slot& slot) {
    if (slot.experts == nullptr) {
      named.emplace_back(slot.name, slot.tensor);
      return;
    }
    K3_CHECK(!slot.experts->packed(), "{} is packed and cannot be trained; load with keep_experts_packed = false", slot.name);
    named.emplace_back(slot.name, &slot.experts->weight);
  });
  return named;
}

}  // namespace k3
