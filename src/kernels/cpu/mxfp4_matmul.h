// y = x W^T with W packed in MXFP4, decoded on the fly: never more than one row of W is widened. Torch-free.
// Layout: x [tokens, in] fp32; codes [out, in / 2], scales [out, in / 32] as published; y [tokens, out] fp32.
// Bytes: W is read once for every call (in / 2 + in / 32 a row); the decode is a 256-entry table of pairs.
#pragma once

#include <cstdint>

namespace k3::kernels {

void mxfp4_matmul(const float* x, const std::uint8_t* codes, const std::uint8_t* scales, float* y, std::int64_t tokens, std::int64_t out_dim,
                  std::int64_t in_dim);

}  // namespace k3::kernels
