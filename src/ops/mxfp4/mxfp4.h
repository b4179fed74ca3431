// MXFP4 on tensors, on any device: the same codes and rounding as checkpoint/mxfp4.h (two E2M1 codes a byte, low nibble = even column,
// one E8M0 scale for 32 columns of the last axis; scale 2^(floor(log2(amax)) - 2), round to nearest even, saturating).
#pragma once

#include "base/tensor.h"

namespace k3::ops {

struct Mxfp4 {
  Tensor codes;   // U8 [..., columns / 2]
  Tensor scales;  // U8 [..., columns / 32]
};

Mxfp4 mxfp4_quantize(const Tensor& values);                                                            // [..., columns]
Tensor mxfp4_dequantize(const Tensor& codes, const Tensor& scales, at::ScalarType dtype);              // exact in bf16 and wider
Tensor mxfp4_round(const Tensor& values);  // dequantize(quantize(values)) in the dtype of values: what the packed model will compute with

}  // namespace k3::ops
