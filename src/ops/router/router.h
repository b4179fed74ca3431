// MoE router. s = sigmoid(W h) in fp32; the top k of s + bias are chosen (lower index first among equals); weights are s without
// the bias, divided by (sum + 1e-20) when renormalised, times the scaling factor. Source: checkpoint.md 3.5.
// Layout: h [tokens, hidden] any float, weight [experts, hidden], bias [experts] fp32. Precision: fp32 islands (fp64 for fp64 inputs).
#pragma once

#include "base/tensor.h"

namespace k3::ops {

struct Routing {
  Tensor experts;  // int64 [tokens, k], by falling selection score
  Tensor weights;  // fp32  [tokens, k], carries gradient to the router
  Tensor scores;   // fp32  [tokens, experts], sigmoid without bias
  Tensor cutoff;   // fp32  [tokens], the (k+1)-th largest selection score: alpha of Quantile Balancing (training.md 2.1)
};

Routing route(const Tensor& h, const Tensor& weight, const Tensor& bias, std::int64_t k, bool renormalize, double scaling_factor);
// The same with the choice given: weights for these experts (comparisons between implementations).
Routing route_forced(const Tensor& h, const Tensor& weight, const Tensor& bias, const Tensor& experts, bool renormalize,
                     double scaling_factor);

}  // namespace k3::ops
