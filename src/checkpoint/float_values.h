// Elements of a stored float tensor as float: BF16, F16, F32 and F64, at any alignment.
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/safetensors.h"

namespace k3 {

void read_floats(const TensorView& view, std::int64_t first, std::span<float> out);  // elements first, first + 1, ...

}  // namespace k3
