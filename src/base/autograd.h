// torch::autograd::grad: gradients of outputs with respect to inputs.
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include "base/tensor.h"
