#include "ops/router/router.h"

#include "ops/precision.h"

namespace k3::ops {
namespace {

Tensor router_scores(const Tensor& h, const Tensor& weight) {
  return at::sigmoid(at::matmul(wide(h), weight.to(wide_type(h)).t()));
}

// The `count` largest of each row, by falling value, lower index first among equals.
std::pair<Tensor, Tensor> largest(const Tensor& values, std::int64_t count) {
  if (values.scalar_type() != at::kFloat) {
    const auto [sorted, order] = at::sort(values, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
    return {sorted.narrow(-1, 0, count), order.narrow(-1, 0, count)};
  }
  // One integer key holds the value (as an order-preserving integer) above the reversed index: top-k of distinct keys has no ties.
  const Tensor bits = values.contiguous().view(at::kInt);
  const Tensor ordered = at::where(bits < 0, bits.bitwise_xor(0x7fffffff), bits).to(at::kLong);
  const Tensor reversed_index = at::arange(values.size(-1) - 1, -1, -1, bits.options().dtype(at::kLong));
  const Tensor keys = std::get<0>(at::topk(ordered * 65536 + reversed_index, count, -1));
  const Tensor order = (values.size(-1) - 1) - keys.bitwise_and(0xffff);
  return {values.gather(-1, order), order};
}

Tensor combine_weights(const Tensor& scores, const Tensor& experts, bool renormalize, double scaling_factor) {
  Tensor weights = scores.gather(-1, experts);
  if (renormalize) weights = weights / (weights.sum(-1, true) + 1e-20);
  return scaling_factor == 1.0 ? weights : weights * scaling_factor;
}

}  // namespace

Routing route(const Tensor& h, const Tensor& weight, const Tensor& bias, std::int64_t k, bool renormalize, double scaling_factor) {
  Routing routing;
  routing.scores = router_scores(h, weight);
  const Tensor selection = routing.scores.detach() + bias.to(routing.scores.scalar_type());
  const bool all_chosen = k == selection.size(-1);
  const auto [values, order] = largest(selection, all_chosen ? k : k + 1);
  routing.experts = order.narrow(-1, 0, k);
  routing.cutoff = values.select(-1, all_chosen ? k - 1 : k);
  routing.weights = combine_weights(routing.scores, routing.experts, renormalize, scaling_factor);
  return routing;
}

Routing route_forced(const Tensor& h, const Tensor& weight, const Tensor& bias, const Tensor& experts, bool renormalize,
                     double scaling_factor) {
  Routing routing = route(h, weight, bias, experts.size(-1), renormalize, scaling_factor);
  routing.experts = experts;
  routing.weights = combine_weights(routing.scores, experts, renormalize, scaling_factor);
  return routing;
}

}  // namespace k3::ops
