// Choosing the next token from a row of logits. Order: temperature, top-k, top-p over what is left, min-p relative to the best.
// The random number is a hash of (seed, stream, position), so a row's text does not depend on what else is in the batch.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/tensor.h"

namespace k3 {

struct SamplingOptions {
  double temperature = 0.0;  // 0: greedy, the lowest id among equals
  double top_p = 1.0;        // smallest set of tokens with at least this mass
  std::int64_t top_k = 0;    // 0: all
  double min_p = 0.0;        // drop tokens below this share of the best one's probability
  std::uint64_t seed = 0;
};
void check_sampling(const SamplingOptions& options);  // UserError that names the option

struct Sampled {
  std::int64_t id = 0;
  double logprob = 0.0;                                // ln of its probability under the model itself (temperature 1, nothing cut)
  std::vector<std::pair<std::int64_t, double>> top;    // the most probable tokens, best first; as many as were asked for
};

// row [vocab]: logits of any float type on any device. `position` is the token's place in its sequence.
Sampled sample(const Tensor& row, const SamplingOptions& options, std::uint64_t stream, std::uint64_t position, std::int64_t top = 0);

}  // namespace k3
