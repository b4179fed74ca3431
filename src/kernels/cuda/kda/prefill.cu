// Host side of prefill.h: checks, the plan, the walk over slabs of chunks.
#include "kernels/cuda/kda/prefill.h"

#include <algorithm>

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/kda/prefill_blocks.cuh"

namespace k3::cuda::kda {
namespace {

using prefill_detail::kBlockStride;
using prefill_detail::kChunk;

struct Plan {
  std::int64_t chunks;  // of the longest row
  int slab_chunks, segments;
  std::size_t block_bytes, split_bytes;
};
// Slabs are even shares of the whole. segments 0: the planner decides.
Plan plan(std::int64_t longest, int rows, int heads, std::int64_t slab_bytes, int segments) {
  const std::int64_t chunks = (longest + kChunk - 1) / kChunk,
                     each = static_cast<std::int64_t>(rows) * heads * kBlockStride;
  if (chunks <= 0 || each <= 0) return {0, 0, 1, 0, 0};
  const std::int64_t most = std::clamp<std::int64_t>(slab_bytes / each, 1, 65535), slabs = (chunks + most - 1) / most,
                     own = (chunks + slabs - 1) / slabs;
  if (segments == 0) segments = prefill_detail::plan_segments(own, rows, heads, multiprocessors());
  segments = static_cast<int>(std::min<std::int64_t>(segments, own));
  return {chunks, static_cast<int>(own), segments, static_cast<std::size_t>(own * each),
          prefill_detail::split_bytes(segments, rows, heads)};
}

}  // namespace

bool prefill_supported(int device_capability, const StepArguments& a) {
  return device_capability == 90 && a.dim == prefill_detail::kDim && a.type == Type::bf16 && a.lower_bound < 0.f &&
         a.lower_bound >= -5.f;
}

std::size_t prefill_workspace_bytes(std::int64_t longest, int rows, int heads, std::int64_t slab_bytes, int segments) {
  const Plan p = plan(longest, rows, heads, slab_bytes, segments);
  return p.block_bytes + p.split_bytes;
}

cudaError_t prefill(const StepArguments& a, std::int64_t longest, void* workspace, cudaStream_t stream,
                    std::int64_t slab_bytes, int segments) {
  if (a.rows < 0 || a.rows > 65535 || a.heads <= 0 || a.commit || !prefill_supported(90, a) || longest < 0 ||
      segments < 0 || segments > prefill_detail::kMostSegments)
    return cudaErrorInvalidValue;
  if (a.rows == 0 || longest == 0) return cudaSuccess;
  for (const Rows* rows : {&a.q, &a.k, &a.v, &a.z, &a.gate})
    if (!rows->data || reinterpret_cast<std::uintptr_t>(rows->data) % 8 != 0 || rows->token_stride % 4 != 0 ||
        rows->head_stride % 4 != 0)
      return cudaErrorInvalidValue;
  if (!a.y.data || reinterpret_cast<std::uintptr_t>(a.y.data) % 8 != 0 || a.y.token_stride % 4 != 0 ||
      a.y.head_stride % 4 != 0)
    return cudaErrorInvalidValue;
  for (const void* p :
       {static_cast<const void*>(a.starts), static_cast<const void*>(a.slots), a.b.data,
        static_cast<const void*>(a.taps), static_cast<const void*>(a.a_log), static_cast<const void*>(a.dt_bias),
        static_cast<const void*>(a.norm_weight), static_cast<const void*>(a.state), static_cast<const void*>(a.window),
        static_cast<const void*>(workspace)})
    if (!p) return cudaErrorInvalidValue;
  const Plan p = plan(longest, a.rows, a.heads, slab_bytes, segments);
  auto* blocks = static_cast<unsigned char*>(workspace);
  const prefill_detail::Split split =
      prefill_detail::place_split(p.slab_chunks, p.segments, a.rows, a.heads, blocks + p.block_bytes);
  for (std::int64_t first = 0; first < p.chunks; first += p.slab_chunks) {
    const prefill_detail::Slab slab{static_cast<int>(first),
                                    static_cast<int>(std::min<std::int64_t>(p.slab_chunks, p.chunks - first)), blocks};
    if (const cudaError_t error = prefill_detail::launch_factors(a, slab, stream); error != cudaSuccess) return error;
    if (const cudaError_t error = prefill_detail::launch_split(a, slab, split, stream); error != cudaSuccess)
      return error;
    if (const cudaError_t error = prefill_detail::launch_state(a, slab, split, stream); error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

}  // namespace k3::cuda::kda
