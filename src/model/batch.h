// One call of the model: any mixture of training documents, prefill chunks and decode rows, packed without padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor.h"

namespace k3 {

// Host-side description of the rows of a batch, made once and used by every layer.
struct RowPlan {
  std::vector<std::int64_t> starts;    // [rows + 1]  first token of each row; starts[rows] = tokens
  std::vector<std::int64_t> contexts;  // [rows]      tokens already held in the row's state; 0 when training
  std::vector<std::int64_t> slots;     // [rows]      slot of the state pool; empty when there is no state
  std::int64_t rows() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  std::int64_t tokens() const { return starts.back(); }
  std::int64_t length(std::int64_t row) const { return starts[row + 1] - starts[row]; }
};

struct ForwardBatch {
  Tensor ids;  // int64 [tokens], on the model's device
  RowPlan plan;
};

// A batch without state: every document starts from nothing and no document sees another.
ForwardBatch pack_documents(std::span<const std::vector<std::int64_t>> documents, at::Device device);
// One row that continues what the slot holds.
ForwardBatch continue_row(std::span<const std::int64_t> ids, std::int64_t context, std::int64_t slot, at::Device device);

}  // namespace k3
