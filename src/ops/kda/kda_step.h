// One KDA layer between its projections for rows that continue a slot of a state pool (generation): convolution, norms,
// gate, delta rule, output norm and gate, by src/kernels/cuda/kda/step.h (short rows, one kernel) or prefill.h (prompts on
// Hopper). State and window are read once and written once, in place. No gradient.
#pragma once

#include <optional>

#include "base/tensor.h"
#include "ops/rows.h"

namespace k3::ops {

inline constexpr std::int64_t kKdaStepTokens = 16;  // longest row of the step kernel

struct KdaStep {
  Tensor q, k, v;      // [tokens, heads, dim] raw projections
  Tensor z;            // [tokens, heads, dim] decay logits
  Tensor b;            // [tokens, heads] beta logits
  Tensor gate;         // [tokens, heads, dim] output gate logits
  Tensor taps;         // [3 * heads * dim, 4]: q, k, v; the last tap meets the current token
  Tensor a_log;        // [heads]
  Tensor dt_bias;      // [heads * dim]
  Tensor norm_weight;  // [dim]
  std::optional<double> lower_bound;
  double norm_eps = 1e-5;
  Tensor state;   // fp32 [slots, heads, dim, dim], key first: one layer of the pool
  Tensor window;  // dtype of q [slots, 3, 3 * heads * dim]: q, k, v side by side, oldest first
};

// True when the kernels are in this build and take these tensors and rows: CUDA, nothing to differentiate, rows of up to
// kKdaStepTokens with bf16 or fp32 and dim 32, 64 or 128, or any rows with bf16, dim 128 and a bounded gate on Hopper.
bool kda_step_takes(const KdaStep& step, const RowPlan& plan);

// -> y [tokens, heads, dim] in the dtype of q; every token enters the state of slot plan.slots[row].
Tensor kda_step(const KdaStep& step, const RowPlan& plan);

}  // namespace k3::ops
