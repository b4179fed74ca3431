// Quantisation-aware training of routed experts: the values that MXFP4 can hold, in ATen ops on the tensor's device.
// Same rule, bit for bit, as checkpoint/mxfp4.h: one scale 2^(floor(log2(max |x|)) - 2) for 32 columns (bytes 1..254),
// E2M1 codes rounded to nearest even, saturating at 6. The straight-through gradient needs no code: the compute copy of
// a weight holds the quantised values and its gradient goes to the fp32 master. Source: training.md 3.2, 3.3.
#pragma once

#include "base/tensor.h"

namespace k3::train {

Tensor mxfp4_round(const Tensor& values);  // fp32 [..., columns], columns a multiple of 32 -> same shape, fp32

}  // namespace k3::train
