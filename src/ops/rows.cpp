#include "ops/rows.h"

#include <algorithm>

namespace k3 {

std::int64_t RowPlan::longest() const {
  std::int64_t longest = 0;
  for (std::int64_t row = 0; row < rows(); ++row) longest = std::max(longest, length(row));
  return longest;
}

RowPlan RowPlan::of_lengths(const std::vector<std::int64_t>& lengths) {
  RowPlan plan;
  for (const std::int64_t length : lengths) plan.starts.push_back(plan.starts.back() + length);
  plan.contexts.assign(lengths.size(), 0);
  return plan;
}

}  // namespace k3
