// How a prefill spreads over the multiprocessors, from a model of the kernels' times.
#pragma once

#include <cstdint>

namespace k3::cuda::kda::prefill_detail {

// state_blocks > 0: factors and state at the same time, a state block on `ranks` multiprocessors (Slab in
// prefill_blocks.cuh). Otherwise one kernel after the other, with the rows in `segments` segments (prefill_split.h).
struct Plan {
  int state_blocks, segments, ranks = 1;
};
// The quickest for rows of `chunks` chunks at most.
Plan plan_prefill(std::int64_t chunks, int rows, int heads, int multiprocessors);

}  // namespace k3::cuda::kda::prefill_detail
