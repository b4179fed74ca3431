// How a packed batch [tokens, ...] is cut into rows (sequences). Host-side, made once per batch, used by every operator that looks
// along the sequence. A row's context is what its state already holds.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor.h"

namespace k3 {

struct RowPlan {
  std::vector<std::int64_t> starts{0};  // [rows + 1]  first token of each row; starts[rows] = tokens
  std::vector<std::int64_t> contexts;   // [rows]      tokens already held in the row's state; 0 when training
  std::vector<std::int64_t> slots;      // [rows]      slot of the state pool; empty when there is no state
  std::int64_t rows() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  std::int64_t tokens() const { return starts.back(); }
  std::int64_t length(std::int64_t row) const { return starts[row + 1] - starts[row]; }
  std::int64_t longest() const;

  // Rows of the given lengths that start from nothing.
  static RowPlan of_lengths(const std::vector<std::int64_t>& lengths);
};

}  // namespace k3
