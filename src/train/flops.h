// Floating-point operations that a training step must do (forward and backward = 3 forward; recomputation does not
// count), for the share of a device's peak. Matrices: 6 per active parameter and token. MLA: scores and values over the
// causal half of each row. KDA: three [key_dim, value_dim] products a token and head (read, write, query of the state).
#pragma once

#include <span>
#include <string>

#include "model/model.h"

namespace k3::train {

double matrix_parameters(Model& model);  // active ones: experts count k / experts, the embedding counts only as a head
double step_flops(const ModelConfig& config, double matrix_parameters,
                  std::span<const std::int64_t> row_starts);  // one micro-batch
double known_peak_flops(at::Device device);  // dense bf16 peak of the GPU by its name; 0 where unknown and on CPUs

}  // namespace k3::train
