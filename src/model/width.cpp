#include "model/width.h"

#include "ops/norm/norm.h"

namespace k3 {
namespace {

ops::Glu glu_of(const ModelConfig& config) {
  return {config.activation == Activation::situ, config.situ_beta, config.situ_linear_beta};
}

ops::Routing choose(const MoeWeights& weights, const MoeConfig& moe, const Tensor& h, std::int64_t layer, const Observer* observer) {
  if (observer != nullptr && observer->forced_experts) {
    if (const auto forced = observer->forced_experts(layer))
      return ops::route_forced(h, weights.router, weights.router_bias, *forced, moe.renormalize, moe.routed_scaling_factor);
  }
  return ops::route(h, weights.router, weights.router_bias, moe.experts_per_token, moe.renormalize, moe.routed_scaling_factor);
}

}  // namespace

Tensor dense_mlp(const MlpWeights& weights, const ModelConfig& config, const Tensor& h) {
  return at::linear(ops::glu(at::linear(h, weights.gate_proj), at::linear(h, weights.up_proj), glu_of(config)), weights.down_proj);
}

Tensor latent_moe(const MoeWeights& weights, const ModelConfig& config, const Tensor& h, std::int64_t layer, const Observer* observer) {
  const ops::Routing routing = choose(weights, config.moe, h, layer, observer);
  if (observer != nullptr && observer->after_router) observer->after_router(layer, routing);
  const Tensor z = weights.latent_down.defined() ? at::linear(h, weights.latent_down) : h;
  Tensor routed = ops::experts(z, routing, weights.experts, glu_of(config));
  if (weights.latent_norm.defined()) routed = ops::rms_norm(routed, weights.latent_norm, config.norm_eps);
  if (weights.latent_up.defined()) routed = at::linear(routed, weights.latent_up);
  return weights.shared ? routed + dense_mlp(*weights.shared, config, h) : routed;
}

}  // namespace k3
