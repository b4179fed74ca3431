// The only header through which torch enters the project: ATen tensors and the autograd function template.
// It is precompiled (target torch_pch), because including torch costs about 20 s and torch/torch.h twice that.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace k3 {
using at::Tensor;
}
