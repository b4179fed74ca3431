// Comparison of whole tensors, and gradients against central differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/autograd.h"

namespace k3::test {

inline Tensor as_double(const Tensor& x) { return x.detach().to(at::kDouble).cpu(); }

// RMS of the difference over RMS of the expected tensor.
inline double rms_error(const Tensor& got, const Tensor& want) {
  const double scale = as_double(want).square().mean().sqrt().item<double>();
  const double error = (as_double(got) - as_double(want)).square().mean().sqrt().item<double>();
  return error / std::max(scale, 1e-30);
}

inline std::string describe_difference(const Tensor& got, const Tensor& want) {
  const Tensor difference = (as_double(got) - as_double(want)).abs().reshape({-1});
  const std::int64_t place = difference.argmax().item<std::int64_t>();
  std::int64_t rest = place;
  std::string index;
  for (std::int64_t axis = want.dim() - 1; axis >= 0; --axis) {
    index = std::to_string(rest % want.size(axis)) + (index.empty() ? "" : ",") + index;
    rest /= want.size(axis);
  }
  return "max |d| = " + std::to_string(difference[place].item<double>()) + " at [" + index + "] got " +
         std::to_string(as_double(got).reshape({-1})[place].item<double>()) + " want " +
         std::to_string(as_double(want).reshape({-1})[place].item<double>());
}

inline void expect_close(const Tensor& got, const Tensor& want, double limit, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  if (want.numel() == 0) return;
  const double error = rms_error(got, want);
  EXPECT_TRUE(error <= limit) << what << ": error " << error << " above " << limit << "; " << describe_difference(got, want);
}

// Gradients of sum(function(inputs) * random) against central differences along random directions, in double.
inline void expect_gradients(const std::function<Tensor(const std::vector<Tensor>&)>& function, std::vector<Tensor> inputs,
                             const std::string& what, double limit = 1e-6) {
  for (Tensor& input : inputs) input = input.detach().to(at::kDouble).clone().set_requires_grad(true);
  const Tensor out = function(inputs);
  const Tensor weights = at::randn(out.sizes(), out.options());
  const auto grads = torch::autograd::grad({(out * weights).sum()}, inputs, {}, std::nullopt, false, /*allow_unused=*/true);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(grads[i].defined()) << what << ": no gradient for input " << i;
    const Tensor direction = at::randn(inputs[i].sizes(), inputs[i].options());
    const double step = 1e-6;
    const auto value = [&](double sign) {
      std::vector<Tensor> moved = inputs;
      moved[i] = inputs[i] + direction * (sign * step);
      return (function(moved) * weights).sum().item<double>();
    };
    const double numeric = (value(1) - value(-1)) / (2 * step);
    const double analytic = (grads[i] * direction).sum().item<double>();
    const double scale = std::max({std::abs(numeric), std::abs(analytic), (grads[i].norm() * direction.norm()).item<double>() * 1e-2, 1e-3});
    EXPECT_LE(std::abs(numeric - analytic) / scale, limit) << what << ": input " << i << " numeric " << numeric << " analytic " << analytic;
  }
}

}  // namespace k3::test
