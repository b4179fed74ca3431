// The header through which torch enters the project: ATen tensors. It is precompiled (target torch_pch), because parsing it costs 20 s.
// What few files need and every file would pay for at each compilation, precompiled or not, stands apart: base/autograd.h, base/autograd_function.h.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace k3 {
using at::Tensor;
}
