#include "train/quantile_balancing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace k3::train {

QuantileBalancing::QuantileBalancing(std::vector<Tensor> biases, std::int64_t experts_per_token)
    : biases_(std::move(biases)), experts_per_token_(experts_per_token) {
  K3_CHECK(!biases_.empty(), "Quantile Balancing needs a router");
  experts_ = biases_.front().size(0);
  const auto routers = static_cast<std::int64_t>(biases_.size());
  const at::Device device = biases_.front().device();
  for (const Tensor& bias : biases_)
    K3_CHECK(bias.scalar_type() == at::kFloat && bias.size(0) == experts_, "router biases must be fp32 [{}]", experts_);
  const auto counts = at::TensorOptions().device(device).dtype(at::kInt);
  histogram_ = at::zeros({routers, experts_, kBins}, counts);
  loads_ = at::zeros({routers, experts_}, counts);
  low_ = at::zeros({routers, 1}, counts.dtype(at::kFloat));
  width_ = at::zeros({routers, 1}, counts.dtype(at::kFloat));
  expert_offsets_ = at::arange(experts_, counts.dtype(at::kLong)) * kBins;
  max_violation_ = at::zeros({}, counts.dtype(at::kFloat));
  counted_.assign(biases_.size(), 0);
}

void QuantileBalancing::begin_step() {
  at::NoGradGuard no_grad;
  const Tensor bias = at::stack(biases_);
  low_ = bias.amin(1, /*keepdim=*/true)
             .sub_(1.0);  // every r lies in [min bias - 1, max bias + 1] because scores lie in (0, 1)
  width_ = bias.amax(1, /*keepdim=*/true).add_(1.0).sub_(low_).div_(static_cast<double>(kBins));
  histogram_.zero_();
  loads_.zero_();
  std::fill(counted_.begin(), counted_.end(), 0);
}

void QuantileBalancing::count(std::int64_t router, const ops::Routing& routing) {
  at::NoGradGuard no_grad;
  const Tensor scores = routing.scores.detach();
  K3_CHECK(scores.size(1) == experts_, "router {} has {} experts, expected {}", router, scores.size(1), experts_);
  const Tensor margin = routing.cutoff.detach().unsqueeze(1) - scores;  // [tokens, experts]
  // Clamped as integers: a score that is not a number must not become an index outside the histogram.
  const Tensor bin =
      margin.sub_(low_[router]).div_(width_[router]).floor_().to(at::kLong).clamp_(0, kBins - 1).add_(expert_offsets_);
  const Tensor flat_bin = bin.view(-1);
  const Tensor one = at::ones({1}, histogram_.options());
  histogram_[router].view(-1).scatter_add_(0, flat_bin, one.expand_as(flat_bin));
  const Tensor chosen = routing.experts.reshape(-1);
  loads_[router].scatter_add_(0, chosen, one.expand_as(chosen));
  counted_[router] += scores.size(0);
}

void QuantileBalancing::end_step(const Tensor& allowed) {
  at::NoGradGuard no_grad;
  const std::int64_t tokens = counted_.front();
  for (const std::int64_t other : counted_)
    K3_CHECK(other == tokens && tokens > 0, "routers saw {} and {} tokens in one step", tokens, other);
  const double target = static_cast<double>(tokens * experts_per_token_) / static_cast<double>(experts_);  // q

  const Tensor cumulative = histogram_.cumsum(2);  // int64 [routers, experts, kBins]
  const Tensor bin =
      (cumulative < static_cast<std::int64_t>(std::ceil(target))).sum(2, /*keepdim=*/true).clamp_max_(kBins - 1);
  const Tensor inside = histogram_.gather(2, bin).squeeze(2).to(at::kFloat);           // h
  const Tensor before = cumulative.gather(2, bin).squeeze(2).to(at::kFloat) - inside;  // c
  const Tensor part = ((target - before) / inside.clamp_min(1.0)).clamp_(0.0, 1.0);
  Tensor bias = low_ + (bin.squeeze(2).to(at::kFloat) + part) * width_;
  bias = bias - bias.mean(1, /*keepdim=*/true);

  const Tensor violation = loads_.to(at::kFloat).amax() / target - 1.0;
  max_violation_ = violation;
  for (std::size_t router = 0; router < biases_.size(); ++router)
    biases_[router].copy_(at::where(allowed, bias[static_cast<std::int64_t>(router)], biases_[router]));
}

Tensor QuantileBalancing::max_violation() const { return max_violation_; }

}  // namespace k3::train
