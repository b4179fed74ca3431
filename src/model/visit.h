// One walk over every tensor of a model: its published name, the member that holds it and its shape in memory. Loading, saving,
// initialisation and the trainer all use this walk, so a tensor exists in exactly one list.
#pragma once

#include <functional>

#include "model/model.h"

namespace k3 {

enum class Init { normal, ones, zeros, conv, a_log, dt_bias };  // how random_model fills it (training.md 1.8)

struct Slot {
  std::string name;                 // published name; experts: "....experts.*.w1.weight", a stack over experts
  Tensor* tensor = nullptr;         // plain tensor
  ops::ExpertMatrix* experts = nullptr;  // or a stack of expert matrices
  std::vector<std::int64_t> shape;  // in memory; for experts [experts, out, in]
  Init init = Init::normal;
  bool island = false;              // stays fp32 (fp64) whatever the model's dtype
};

// Shapes model.layers after the config (weights already there stay) and calls `visit` for every tensor, in file order.
void visit_tensors(Model& model, const std::function<void(Slot)>& visit);

// The name of one expert's tensor, from the stack's name.
std::string expert_name(const std::string& stack_name, std::int64_t expert);

}  // namespace k3
