// torch::autograd::Function, for operators with a backward pass of their own, and torch::autograd::grad.
#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/tensor.h"
