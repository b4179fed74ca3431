#include "train/loss.h"

#include <algorithm>

#include "base/autograd_function.h"

namespace k3::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static Tensor forward(AutogradContext* context, const Variable& hidden, const Variable& head, const Tensor& targets,
                        const Tensor& mask, double scale, std::int64_t logit_bytes, bool with_gradient) {
    at::NoGradGuard no_grad;
    const std::int64_t tokens = hidden.size(0), vocab = head.size(0);
    const std::int64_t rows = std::max<std::int64_t>(1, logit_bytes / (vocab * 4));
    Tensor loss = at::zeros({}, hidden.options().dtype(at::kFloat));
    Tensor hidden_gradient, head_gradient;
    if (with_gradient) {
      hidden_gradient = at::empty_like(hidden);
      head_gradient = at::zeros({vocab, hidden.size(1)}, hidden.options().dtype(at::kFloat));
    }
    for (std::int64_t first = 0; first < tokens; first += rows) {
      const std::int64_t count = std::min(rows, tokens - first);
      const Tensor chunk = hidden.narrow(0, first, count);
      const Tensor target = targets.narrow(0, first, count).unsqueeze(1);
      const Tensor weight = mask.narrow(0, first, count).unsqueeze(1) * scale;
      Tensor logit = at::linear(chunk, head).to(at::kFloat);
      const Tensor normalizer = logit.logsumexp(1, /*keepdim=*/true);
      loss += ((normalizer - logit.gather(1, target)) * weight).sum();
      if (!with_gradient) continue;
      logit.sub_(normalizer).exp_();  // softmax
      logit.scatter_add_(1, target, at::full({1, 1}, -1.0, logit.options()).expand({count, 1}));
      const Tensor logit_gradient = logit.mul_(weight).to(hidden.scalar_type());
      hidden_gradient.narrow(0, first, count).copy_(at::mm(logit_gradient, head));
      head_gradient += at::mm(logit_gradient.t(), chunk);
    }
    if (with_gradient) context->save_for_backward({hidden_gradient, head_gradient.to(head.scalar_type())});
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradient) {
    const auto saved = context->get_saved_variables();
    const Tensor& outer = output_gradient[0];
    return {saved[0] * outer.to(saved[0].scalar_type()),
            saved[1] * outer.to(saved[1].scalar_type()),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

Tensor cross_entropy(const Tensor& hidden, const Tensor& head, const Tensor& targets, const Tensor& mask, double scale,
                     std::int64_t logit_bytes) {
  const bool with_gradient = at::GradMode::is_enabled() && (hidden.requires_grad() || head.requires_grad());
  return CrossEntropy::apply(hidden, head, targets, mask, scale, logit_bytes, with_gradient);
}

}  // namespace k3::train
