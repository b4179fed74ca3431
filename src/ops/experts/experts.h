// Routed experts: y[t] = sum over chosen e of weight[t, e] * w2_e glu(w1_e z[t], w3_e z[t]). Grouped by expert, never a loop over tokens.
// Products in the dtype of z, the weighted sum in fp32, one rounding at the end. Source: checkpoint.md 3.6 steps 2 and 3.
#pragma once

#include "base/tensor.h"
#include "ops/glu/glu.h"
#include "ops/router/router.h"

namespace k3::ops {

// All experts of a layer. Plain: a float stack. Packed (MXFP4): codes U8 [experts, out, in / 2] and scales U8 [experts, out, in / 32].
struct ExpertMatrix {
  Tensor weight;         // [experts, out, in], or undefined when packed
  Tensor codes, scales;  // packed form
  bool packed() const { return codes.defined(); }
  std::int64_t experts() const { return packed() ? codes.size(0) : weight.size(0); }
  std::int64_t out_dim() const { return packed() ? codes.size(1) : weight.size(1); }
  std::int64_t in_dim() const { return packed() ? codes.size(2) * 2 : weight.size(2); }
};

struct ExpertWeights {
  ExpertMatrix w1;  // gate [experts, expert_dim, latent]
  ExpertMatrix w3;  // up   [experts, expert_dim, latent]
  ExpertMatrix w2;  // down [experts, latent, expert_dim]
};

Tensor experts(const Tensor& z, const Routing& routing, const ExpertWeights& weights, const Glu& glu);  // [tokens, latent] -> same

}  // namespace k3::ops
