// torch::autograd::Function, for operators with a backward pass of their own.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include "base/tensor.h"
