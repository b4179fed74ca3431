// What is trained: the model with leaf tensors in the compute dtype, its optimiser and its router balancing, and one
// pass over a micro-batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "train/loader.h"
#include "train/optimizer.h"
#include "train/quantile_balancing.h"
#include "train/recipe.h"

namespace k3::train {

struct DeviceBatch {
  ForwardBatch forward;
  Tensor targets;  // int64 [tokens]
  Tensor mask;     // fp32  [tokens]
};
DeviceBatch to_device(const MicroBatch& batch, at::Device device);

struct Trainee {
  Model model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<QuantileBalancing> balancing;               // none without routers
  std::vector<std::int64_t> router_of_layer;                  // [layers] -1: dense
  std::vector<std::pair<std::string, Tensor>> router_biases;  // by published name, in layer order

  // Forward and backward of one micro-batch; gradients and router scores are added up. Returns the detached loss
  //   scale * sum over counted targets of -log p(target)      as a scalar on the device.
  Tensor train_micro_batch(const DeviceBatch& batch, double scale);
  Tensor loss_without_gradient(const DeviceBatch& batch, double scale) const;
};

// Fresh weights, or those of recipe.init. Refuses a vocabulary smaller than the tokenizer's.
Trainee make_trainee(const Recipe& recipe, at::Device device, at::ScalarType dtype, std::int64_t tokenizer_vocab);

// Names the first tensor that is not finite when `batches` are run with the current weights: a layer's output, the loss
// or a gradient.
std::string first_bad_tensor(Trainee& trainee, const std::vector<MicroBatch>& batches);

}  // namespace k3::train
