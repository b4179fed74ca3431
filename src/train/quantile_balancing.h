// Quantile Balancing: the selection bias of every router, set once a step from the scores of the step, with no step
// size. For token i and expert j, r = cutoff_i - score_ij is the bias that puts j exactly at the cutoff. The new bias
// of j is the (k / experts)-quantile of r over all tokens, minus the mean over experts. The quantile comes from a
// histogram [experts, kBins] that micro-batches (and later ranks) simply add up. Everything stays on the device: no
// value is read back. Source: training.md 2.1-2.4.
#pragma once

#include "base/tensor.h"
#include "ops/router/router.h"

namespace k3::train {

class QuantileBalancing {
 public:
  static constexpr std::int64_t kBins = 1000;

  // `biases` are the routers' own bias tensors, fp32 [experts] each, all with the same number of experts; updated in
  // place.
  QuantileBalancing(std::vector<Tensor> biases, std::int64_t experts_per_token);

  void begin_step();  // fixes the histogram range from the current biases
  // Adds one micro-batch of one router; gradients are not touched.
  void count(std::int64_t router, const ops::Routing& routing);
  // New biases from all counts since begin_step. `allowed` is a bool scalar: false leaves the biases as they are.
  void end_step(const Tensor& allowed);

  // fp32 scalar of the step that ended: the largest over routers of max_j load_j / mean load - 1.
  Tensor max_violation() const;
  const Tensor& histogram() const { return histogram_; }  // int32 [routers, experts, kBins]

 private:
  std::vector<Tensor> biases_;
  std::int64_t experts_per_token_, experts_ = 0;
  std::vector<std::int64_t> counted_;  // tokens of each router
  Tensor histogram_;                   // int32 [routers, experts, kBins]
  Tensor loads_;                       // int32 [routers, experts]
  Tensor low_, width_;                 // fp32 [routers, 1]
  Tensor expert_offsets_;              // int64 [experts]: first bin of each expert in a flat histogram
  Tensor max_violation_;
};

}  // namespace k3::train
