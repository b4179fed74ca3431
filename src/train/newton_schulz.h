// Newton-Schulz iteration: an approximate polar factor (all singular values near 1) of every matrix of a batch.
//   X = B / max(|B|_F, 1e-7);  repeat: A = X X^T, X = a X + (b A + c A A) X.  Tall matrices are transposed first.
// Layout [matrices, rows, cols]; products in bf16 on CUDA, in the input's dtype elsewhere. Source: training.md 1.4.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace k3::train {

using NewtonSchulzTable = std::vector<std::array<double, 3>>;  // (a, b, c) of each iteration

// simple5 (Muon, Moonlight), quintic5 (Megatron), deepseek_v4 (8 + 2). The tables differ in the size of the step by up
// to 20 %.
NewtonSchulzTable newton_schulz_table(const std::string& name);

Tensor newton_schulz(const Tensor& batch,
                     const NewtonSchulzTable& table);  // fp32 [matrices, rows, cols] -> same shape, fp32

}  // namespace k3::train
