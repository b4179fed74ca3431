// One call of the model: any mixture of training documents, prefill chunks and decode rows, packed without padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor.h"
#include "ops/rows.h"

namespace k3 {

struct ForwardBatch {
  Tensor ids;  // int64 [tokens], on the model's device
  RowPlan plan;
};

// A batch without state: every document starts from nothing and no document sees another.
ForwardBatch pack_documents(std::span<const std::vector<std::int64_t>> documents, at::Device device);
// One row that continues what the slot holds.
ForwardBatch continue_row(std::span<const std::int64_t> ids, std::int64_t context, std::int64_t slot, at::Device device);

}  // namespace k3
