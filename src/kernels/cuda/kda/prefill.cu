// Host side of prefill.h: checks, the plan, the walk over slabs of chunks.
#include "kernels/cuda/kda/prefill.h"

#include <algorithm>

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/kda/prefill_blocks.cuh"
#include "kernels/cuda/kda/prefill_plan.h"

namespace k3::cuda::kda {
namespace {

using prefill_detail::kBlockStride;
using prefill_detail::kChunk;
using prefill_detail::Slab;

// From here on blocks of the factor kernel take chunks when they are free, for which a counter is zeroed (2 us).
constexpr std::size_t kManyBlocks = 4096;

struct Slabs {
  std::int64_t chunks, lines;  // of the longest row; of the call
  int each_chunks, each_lines;  // of a slab
  prefill_detail::Plan plan;
  std::size_t block_bytes, split_bytes, flag_bytes;
};
// Slabs are even shares of the chunks of all lines; or, with both kernels at once, of lines with all their chunks when
// there is room for a line of every state block: fewer lines to begin and end.
Slabs cut(std::int64_t longest, int rows, int heads, const PrefillOptions& options) {
  const std::int64_t chunks = (longest + kChunk - 1) / kChunk, lines = static_cast<std::int64_t>(rows) * heads;
  if (chunks <= 0 || lines <= 0) return {0, 0, 0, 0, {0, 1}, 0, 0, 0};
  const std::int64_t room = options.slab_bytes / kBlockStride;
  const auto share = [](std::int64_t all, std::int64_t most) {
    most = std::clamp<std::int64_t>(most, 1, 65535);
    const std::int64_t slabs = (all + most - 1) / most;
    return (all + slabs - 1) / slabs;
  };
  const auto plan_for = [&](std::int64_t each) {
    prefill_detail::Plan plan{options.state_blocks, std::max(options.segments, 1), options.ranks};
    if (options.segments == 0 && options.state_blocks == 0)
      plan = prefill_detail::plan_prefill(each, rows, heads, multiprocessors());
    plan.segments = static_cast<int>(std::min<std::int64_t>(plan.segments, each));
    plan.state_blocks = static_cast<int>(std::min<std::int64_t>(plan.state_blocks, lines));
    return plan;
  };
  std::int64_t each_chunks = chunks, each_lines = lines;
  prefill_detail::Plan plan = plan_for(chunks);
  if (plan.state_blocks > 0 && room / chunks >= plan.state_blocks) {
    each_lines = share(lines, room / chunks);
  } else {
    each_chunks = share(chunks, room / lines);
    if (each_chunks < chunks) plan = plan_for(each_chunks);
  }
  const std::size_t blocks = static_cast<std::size_t>(each_lines * each_chunks);
  const std::size_t flags = plan.state_blocks > 0 ? blocks : 0;
  return {chunks,
          lines,
          static_cast<int>(each_chunks),
          static_cast<int>(each_lines),
          plan,
          blocks * kBlockStride,
          prefill_detail::split_bytes(plan.segments, rows, heads),
          (plan.state_blocks > 0 || blocks >= kManyBlocks ? Slab::counters(plan.state_blocks) + flags : 0) *
              sizeof(std::uint32_t)};
}

}  // namespace

bool prefill_supported(const StepArguments& a) {
  return device_capability() == 90 && a.dim == prefill_detail::kDim && a.type == Type::bf16 && a.lower_bound < 0.f &&
         a.lower_bound >= -5.f;
}

std::size_t prefill_workspace_bytes(std::int64_t longest, int rows, int heads, const PrefillOptions& options) {
  const Slabs slabs = cut(longest, rows, heads, options);
  return slabs.block_bytes + slabs.split_bytes + slabs.flag_bytes;
}

cudaError_t prefill(const StepArguments& a, std::int64_t longest, void* workspace, cudaStream_t stream,
                    const PrefillOptions& options) {
  if (a.rows < 0 || a.rows > 65535 || a.heads <= 0 || a.commit || !prefill_supported(a) || longest < 0 ||
      options.segments < 0 || options.segments > prefill_detail::kMostSegments || options.state_blocks < 0 ||
      (options.segments > 0 && options.state_blocks > 0) || options.ranks < 1 || options.ranks > Slab::kMostRanks ||
      (options.ranks > 1 && options.state_blocks == 0))
    return cudaErrorInvalidValue;
  if (a.rows == 0 || longest == 0) return cudaSuccess;
  for (const Rows* rows : {&a.q, &a.k, &a.v, &a.z, &a.gate})
    if (!rows->data || reinterpret_cast<std::uintptr_t>(rows->data) % 16 != 0 || rows->token_stride % 8 != 0 ||
        rows->head_stride % 8 != 0)
      return cudaErrorInvalidValue;
  if (!a.y.data || reinterpret_cast<std::uintptr_t>(a.y.data) % 16 != 0 || a.y.token_stride % 8 != 0 ||
      a.y.head_stride % 8 != 0)
    return cudaErrorInvalidValue;
  for (const void* p :
       {static_cast<const void*>(a.starts), static_cast<const void*>(a.slots), a.b.data,
        static_cast<const void*>(a.taps), static_cast<const void*>(a.a_log), static_cast<const void*>(a.dt_bias),
        static_cast<const void*>(a.norm_weight), static_cast<const void*>(a.state), static_cast<const void*>(a.window),
        static_cast<const void*>(workspace)})
    if (!p) return cudaErrorInvalidValue;
  const Slabs slabs = cut(longest, a.rows, a.heads, options);
  auto* blocks = static_cast<unsigned char*>(workspace);
  const prefill_detail::Split split =
      prefill_detail::place_split(slabs.each_chunks, slabs.plan.segments, a.rows, a.heads, blocks + slabs.block_bytes);
  auto* flags = reinterpret_cast<std::uint32_t*>(blocks + slabs.block_bytes + slabs.split_bytes);
  for (std::int64_t line = 0; line < slabs.lines; line += slabs.each_lines)
    for (std::int64_t chunk = 0; chunk < slabs.chunks; chunk += slabs.each_chunks) {
      const auto some = [](std::int64_t each, std::int64_t left) { return static_cast<int>(std::min(each, left)); };
      const Slab slab{static_cast<int>(chunk),
                      some(slabs.each_chunks, slabs.chunks - chunk),
                      static_cast<int>(line),
                      some(slabs.each_lines, slabs.lines - line),
                      blocks,
                      slabs.plan.state_blocks,
                      slabs.plan.state_blocks > 0 ? flags + Slab::counters(slabs.plan.state_blocks) : nullptr,
                      slabs.flag_bytes ? flags : nullptr,
                      slabs.plan.ranks};
      cudaError_t error = slab.claimed ? clear_async(flags, slabs.flag_bytes, stream) : cudaSuccess;
      if (error == cudaSuccess) error = prefill_detail::launch_factors(a, slab, stream);
      if (error == cudaSuccess) error = prefill_detail::launch_split(a, slab, split, stream);
      if (error == cudaSuccess) error = prefill_detail::launch_state(a, slab, split, stream);
      if (error != cudaSuccess) return error;
    }
  return cudaSuccess;
}

}  // namespace k3::cuda::kda
