#include "train/trainee.h"

#include "base/autograd.h"
#include "base/error.h"
#include "train/loss.h"

namespace k3::train {
namespace {

Tensor host_tensor(const void* data, std::int64_t elements, at::ScalarType dtype, at::Device device) {
  Tensor tensor = at::from_blob(const_cast<void*>(data), {elements}, at::TensorOptions().dtype(dtype)).clone();
  if (!device.is_cuda()) return tensor;
  return tensor.pin_memory().to(device, /*non_blocking=*/true);
}

ModelConfig config_of(const Recipe& recipe) {
  ModelConfig config = recipe.init.empty() ? parse_config(recipe.model_config, recipe.path.string() + " [model]")
                                           : read_config(recipe.init);
  config.packed_experts = recipe.quantize_experts;
  config.vision.reset();  // the text model is what is trained
  return config;
}

Model start_model(const Recipe& recipe, const ModelConfig& config, at::Device device, at::ScalarType dtype) {
  const LoadOptions options{.dtype = dtype, .device = device, .keep_experts_packed = false};
  if (recipe.init.empty()) return random_model(config, options, recipe.seed);
  Model model = load_model(recipe.init, options);
  model.config = config;
  return model;
}

}  // namespace

DeviceBatch to_device(const MicroBatch& batch, at::Device device) {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  DeviceBatch moved;
  moved.forward.ids = host_tensor(batch.ids.data(), tokens, at::kLong, device);
  moved.forward.plan.starts = batch.row_starts;
  moved.forward.plan.contexts.assign(batch.row_starts.size() - 1, 0);
  moved.targets = host_tensor(batch.targets.data(), tokens, at::kLong, device);
  moved.mask = host_tensor(batch.mask.data(), tokens, at::kFloat, device);
  return moved;
}

Trainee make_trainee(const Recipe& recipe, at::Device device, at::ScalarType dtype, std::int64_t tokenizer_vocab) {
  const ModelConfig config = config_of(recipe);
  if (config.vocab < tokenizer_vocab)
    throw_user("{}: key model.vocab_size ({}) is smaller than the tokenizer's {} ids; raise it", recipe.path.string(),
               config.vocab, tokenizer_vocab);
  if (config.moe.experts > 0 && config.moe.experts_per_token >= config.moe.experts)
    throw_user("{}: key model.num_experts_per_token ({}) must be below num_experts ({}) for the router to be balanced",
               recipe.path.string(), config.moe.experts_per_token, config.moe.experts);
  Trainee trainee;
  trainee.model = start_model(recipe, config, device, dtype);
  Model masters = start_model(recipe, config, device, at::kFloat);
  const auto named = named_tensors(trainee.model), named_masters = named_tensors(masters);
  std::vector<OptimizedTensor> optimized;
  for (std::size_t index = 0; index < named.size(); ++index) {
    const auto& [name, tensor] = named[index];
    const ParameterRule rule = parameter_rule(name, tensor->sizes(), config);
    if (rule.update == Update::none) {
      trainee.router_biases.emplace_back(name, *tensor);
      continue;
    }
    if (!tensor->is_contiguous()) *tensor = tensor->contiguous();
    tensor->requires_grad_(true);
    optimized.push_back({name, *tensor, *named_masters[index].second, rule});
  }
  if (config.tied_embeddings) trainee.model.head = trainee.model.embedding;
  trainee.optimizer = std::make_unique<Optimizer>(std::move(optimized), recipe.optimizer);
  std::vector<Tensor> biases;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    trainee.router_of_layer.push_back(config.is_moe(layer) ? static_cast<std::int64_t>(biases.size()) : -1);
    if (config.is_moe(layer)) biases.push_back(trainee.router_biases.at(biases.size()).second);
  }
  K3_CHECK(biases.size() == trainee.router_biases.size(), "{} router biases for {} routers",
           trainee.router_biases.size(), biases.size());
  if (!biases.empty()) trainee.balancing = std::make_unique<QuantileBalancing>(biases, config.moe.experts_per_token);
  return trainee;
}

Tensor Trainee::train_micro_batch(const DeviceBatch& batch, double scale) {
  bool counting = true;  // a layer that is computed again during backward must not be counted twice
  Observer observer;
  observer.after_router = [&](std::int64_t layer, const ops::Routing& routing) {
    if (counting) balancing->count(router_of_layer[static_cast<std::size_t>(layer)], routing);
  };
  const Tensor hidden = forward(model, batch.forward, nullptr, balancing ? &observer : nullptr);
  const Tensor loss = cross_entropy(hidden, model.head, batch.targets, batch.mask, scale);
  counting = false;
  optimizer->accumulate(torch::autograd::grad({loss}, optimizer->leaves(), {}, /*retain_graph=*/std::nullopt,
                                              /*create_graph=*/false,
                                              /*allow_unused=*/true));
  return loss.detach();
}

Tensor Trainee::loss_without_gradient(const DeviceBatch& batch, double scale) const {
  at::NoGradGuard no_grad;
  return cross_entropy(forward(model, batch.forward), model.head, batch.targets, batch.mask, scale);
}

std::string first_bad_tensor(Trainee& trainee, const std::vector<MicroBatch>& batches) {
  const auto bad = [](const Tensor& tensor) { return !at::isfinite(tensor).all().item<bool>(); };
  for (const MicroBatch& host : batches) {
    const DeviceBatch batch = to_device(host, trainee.model.device());
    std::string found;
    Observer observer;
    observer.after_layer = [&](std::int64_t layer, const Tensor& running_sum) {
      if (found.empty() && bad(running_sum)) found = fmt::format("the output of layer {}", layer);
    };
    if (bad(trainee.model.embedding)) return "the embedding";
    const Tensor hidden = forward(trainee.model, batch.forward, nullptr, &observer);
    if (!found.empty()) return found;
    if (bad(hidden)) return "the output of the last mix and norm";
    const Tensor loss = cross_entropy(hidden, trainee.model.head, batch.targets, batch.mask, 1.0);
    if (bad(loss)) return "the loss";
    const auto gradients =
        torch::autograd::grad({loss}, trainee.optimizer->leaves(), {}, std::nullopt, false, /*allow_unused=*/true);
    for (std::size_t leaf = gradients.size(); leaf-- > 0;)  // backward goes from the last tensor to the first
      if (gradients[leaf].defined() && bad(gradients[leaf])) return "the gradient of " + trainee.optimizer->name(leaf);
  }
  return "nothing when the step is run again, so the cause is not in the data or the weights alone";
}

}  // namespace k3::train
