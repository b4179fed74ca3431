// Host side of prefill.h: checks, the walk over slabs of chunks.
#include "kernels/cuda/kda/prefill.h"

#include <algorithm>

#include "kernels/cuda/kda/prefill_blocks.cuh"

namespace k3::cuda::kda {
namespace {

using prefill_detail::kBlockStride;
using prefill_detail::kChunk;

// Chunks of a slab, even shares of the whole.
int slab_chunks(std::int64_t longest, int rows, int heads, std::int64_t slab_bytes) {
  const std::int64_t chunks = (longest + kChunk - 1) / kChunk,
                     each = static_cast<std::int64_t>(rows) * heads * kBlockStride;
  if (chunks == 0 || each == 0) return 0;
  const std::int64_t most = std::clamp<std::int64_t>(slab_bytes / each, 1, 65535), slabs = (chunks + most - 1) / most;
  return static_cast<int>((chunks + slabs - 1) / slabs);
}

}  // namespace

bool prefill_supported(int device_capability, const StepArguments& a) {
  return device_capability == 90 && a.dim == prefill_detail::kDim && a.type == Type::bf16 && a.lower_bound < 0.f &&
         a.lower_bound >= -5.f;
}

std::size_t prefill_workspace_bytes(std::int64_t longest, int rows, int heads, std::int64_t slab_bytes) {
  return static_cast<std::size_t>(slab_chunks(longest, rows, heads, slab_bytes)) * rows * heads * kBlockStride;
}

cudaError_t prefill(const StepArguments& a, std::int64_t longest, void* workspace, cudaStream_t stream,
                    std::int64_t slab_bytes) {
  if (a.rows < 0 || a.rows > 65535 || a.heads <= 0 || a.commit || !prefill_supported(90, a) || longest < 0)
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
  const int chunks = static_cast<int>((longest + kChunk - 1) / kChunk),
            step_chunks = slab_chunks(longest, a.rows, a.heads, slab_bytes);
  for (int first = 0; first < chunks; first += step_chunks) {
    const prefill_detail::Slab slab{first, std::min(step_chunks, chunks - first),
                                    static_cast<unsigned char*>(workspace)};
    if (const cudaError_t error = prefill_detail::launch_factors(a, slab, stream); error != cudaSuccess) return error;
    if (const cudaError_t error = prefill_detail::launch_state(a, slab, stream); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace k3::cuda::kda
