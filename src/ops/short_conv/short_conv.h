// Depthwise causal convolution over the tokens of each row, then SiLU: c[t] = sum_j taps[:, j] u[t - (taps - 1) + j], y = c sigmoid(c).
// The last tap meets the current token; before a row's start stand its window or zeros. Accumulates in fp32, rounds once.
// Layout: u [tokens, channels], taps [channels, taps] fp32, window [rows, taps - 1, channels] raw inputs, oldest first.
// Source: checkpoint.md 3.2 step 2.
#pragma once

#include "base/tensor.h"
#include "ops/rows.h"

namespace k3::ops {

struct ShortConv {
  Tensor out;     // [tokens, channels], dtype of u
  Tensor window;  // [rows, taps - 1, channels]: what the next call needs; undefined when no window was given
};

// `window` undefined: every row starts from zeros (training).
ShortConv short_conv(const Tensor& u, const Tensor& taps, const RowPlan& plan, const Tensor& window);

}  // namespace k3::ops
