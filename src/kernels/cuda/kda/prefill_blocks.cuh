// The block of operands that the factor kernel of prefill.h hands to the state kernel, and the slab of chunks they
// work on.
#pragma once

#include "kernels/cuda/kda/prefill.h"
#include "kernels/cuda/kda/prefill_split.h"  // Split

namespace k3::cuda::kda::prefill_detail {

inline constexpr int kChunk = 64, kDim = 128;
inline constexpr int kPanel = kChunk * 128;  // bytes of a [64][64] bf16 panel

// Where byte `byte` of row `row` lies in a panel: 16-byte pieces are exchanged by the row (the 128-byte swizzle of
// wgmma).
__host__ __device__ constexpr int panel_offset(int row, int byte) { return row * 128 + (byte ^ ((row & 7) << 4)); }

// Byte offsets inside a block; a [64][128] operand is two panels. Every panel starts at a multiple of 1024.
inline constexpr int kRestoredKeys = 0, kWeightedKeys = 2 * kPanel, kDecayedQueries = 4 * kPanel,
                     kWeightedValues = 6 * kPanel;
inline constexpr int kScores = 8 * kPanel, kDecay = 9 * kPanel, kBlockBytes = 9 * kPanel + kDim * 4;
inline constexpr int kBlockStride = (kBlockBytes + 1023) / 1024 * 1024;

// state_blocks > 0: both kernels run at the same time, the factors on the other multiprocessors. A line is a row and
// head, number row * heads + head; state block s takes the lines s, s + state_blocks, ..., each from its first chunk to
// its last. The factors are made in the order in which they will be used (work_place); `ready` says which are there.
struct Slab {
  int first_chunk, chunks;      // of every row
  unsigned char* blocks;        // [rows, chunks, heads] blocks of kBlockStride bytes
  int state_blocks = 0;         // 0: the state kernel follows the factor kernel
  uint32_t* ready = nullptr;    // [rows, chunks, heads], zero at the start, 1 once the block is there
};

struct WorkPlace {
  int row, chunk, head;  // row = rows: nothing
};
// What the factor kernel makes as number `index` of work_count().
__host__ __device__ inline std::int64_t work_count(const Slab& slab, int rows, int heads) {
  const std::int64_t lines = static_cast<std::int64_t>(rows) * heads,
                     turn = slab.state_blocks > 0 ? slab.state_blocks : 1;
  return (lines + turn - 1) / turn * turn * slab.chunks;
}
__host__ __device__ inline WorkPlace work_place(const Slab& slab, int rows, int heads, int index) {
  if (slab.state_blocks == 0) return {index / heads / slab.chunks, index / heads % slab.chunks, index % heads};
  const int turn = slab.state_blocks, wave = index / (turn * slab.chunks), own = index % (turn * slab.chunks);
  const int line = wave * turn + own % turn;
  return {line < rows * heads ? line / heads : rows, own / turn, line % heads};
}
__device__ __forceinline__ unsigned char* block_of(const Slab& slab, int row, int chunk, int heads, int head) {
  return slab.blocks + ((static_cast<std::int64_t>(row) * slab.chunks + chunk) * heads + head) * kBlockStride;
}

cudaError_t launch_factors(const StepArguments& arguments, const Slab& slab, cudaStream_t stream);
cudaError_t launch_pairs(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);
cudaError_t launch_split(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);
cudaError_t launch_state(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);

}  // namespace k3::cuda::kda::prefill_detail
