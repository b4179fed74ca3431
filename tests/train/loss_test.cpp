#include "train/loss.h"

#include <gtest/gtest.h>

#include "base/autograd.h"

namespace k3::train {
namespace {

// The chunked loss and its gradients against log_softmax under autograd, in double, for chunks that do not divide the
// rows.
TEST(Loss, EqualsAutogradForAnyChunk) {
  at::manual_seed(10);
  constexpr std::int64_t kTokens = 7, kHidden = 5, kVocab = 11;
  const Tensor hidden = at::randn({kTokens, kHidden}, at::kDouble).requires_grad_(true);
  const Tensor head = at::randn({kVocab, kHidden}, at::kDouble).requires_grad_(true);
  const Tensor targets = at::randint(kVocab, {kTokens}, at::kLong);
  const Tensor mask = at::tensor({1.f, 0.f, 1.f, 1.f, 0.f, 1.f, 1.f});
  const Tensor log_p = at::log_softmax(at::linear(hidden, head), 1);
  const Tensor want = -(log_p.gather(1, targets.unsqueeze(1)).squeeze(1) * mask).sum() * 0.2;
  const auto want_gradients = torch::autograd::grad({want}, {hidden, head});
  for (const std::int64_t rows : {1, 3, 7, 100}) {
    const Tensor loss = cross_entropy(hidden, head, targets, mask, 0.2, rows * kVocab * 4);
    EXPECT_NEAR(loss.item<double>(), want.item<double>(), 1e-5);
    const auto gradients = torch::autograd::grad({loss}, {hidden, head});
    for (int index = 0; index < 2; ++index)
      EXPECT_LE((gradients[static_cast<std::size_t>(index)] - want_gradients[static_cast<std::size_t>(index)])
                    .abs()
                    .max()
                    .item<double>(),
                1e-5);
  }
  at::NoGradGuard no_grad;
  EXPECT_NEAR(cross_entropy(hidden, head, targets, mask, 0.2).item<double>(), want.item<double>(), 1e-5);
}

}  // namespace
}  // namespace k3::train
