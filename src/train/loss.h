// Next-token cross entropy straight from hidden rows: the head is applied to a few thousand rows at a time, so [tokens,
// vocab] never exists.
//   loss = scale * sum_t mask_t (logsumexp(z_t) - z_t[target_t]),  z = head hidden
// The gradients for hidden and head are made in the same pass (softmax - one_hot) and handed out in backward.
// Precision: products in the dtype of hidden, softmax and sums in fp32. Source: training.md 1.10.
#pragma once

#include "base/tensor.h"

namespace k3::train {

inline constexpr std::int64_t kLogitBytes = std::int64_t{256} << 20;  // fp32 logits alive at once

// hidden [tokens, hidden], head [vocab, hidden], targets int64 [tokens], mask fp32 [tokens] (1: counts, 0: ignored) ->
// fp32 scalar.
Tensor cross_entropy(const Tensor& hidden, const Tensor& head, const Tensor& targets, const Tensor& mask, double scale,
                     std::int64_t logit_bytes = kLogitBytes);

}  // namespace k3::train
