// The chunk form of kda.h: wide inputs and a defined initial state. Source: kernels.md 1.2 (WY form), 1.3 (tiles and references).
#pragma once

#include "ops/kda/kda.h"

namespace k3::ops {

KdaResult kda_chunk(const KdaInputs& wide_inputs, const RowPlan& plan, const Tensor& initial_state);

}  // namespace k3::ops
