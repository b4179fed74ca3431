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
// its last. The factors are made in the order in which they will be used (WorkPlace); `ready` says which are there.
struct Slab {
  int first_chunk, chunks;      // of every row
  unsigned char* blocks;        // [rows, chunks, heads] blocks of kBlockStride bytes
  int state_blocks = 0;         // 0: the state kernel follows the factor kernel
  uint32_t* ready = nullptr;    // [rows, chunks, heads], zero at the start, 1 once the block is there
};

// The order of the factor kernel: turns of lines (the heads of a row, or as many lines as there are state blocks), in a
// turn chunk by chunk, in a chunk line by line. Number ((turn * chunks) + chunk) * turn_lines + line.
struct WorkPlace {
  int line, chunk, turn;
};
__host__ __device__ inline int turn_lines(const Slab& slab, int heads) {
  return slab.state_blocks > 0 ? slab.state_blocks : heads;
}
__host__ __device__ inline int work_turns(const Slab& slab, int rows, int heads) {
  return slab.state_blocks > 0 ? (rows * heads + slab.state_blocks - 1) / slab.state_blocks : rows;
}
__host__ __device__ inline WorkPlace work_place(const Slab& slab, int heads, int number) {
  const int lines = turn_lines(slab, heads);
  return {number % lines, number / lines % slab.chunks, number / lines / slab.chunks};
}
// The place `step` numbers further, without divisions.
__host__ __device__ inline WorkPlace next_place(WorkPlace place, const WorkPlace& step, const Slab& slab, int heads) {
  const int lines = turn_lines(slab, heads);
  place.line += step.line;
  const int carry = place.line >= lines;
  place.line -= carry ? lines : 0, place.chunk += step.chunk + carry;
  const int more = place.chunk >= slab.chunks;
  place.chunk -= more ? slab.chunks : 0, place.turn += step.turn + more;
  return place;
}
struct WorkLine {
  int row, head;  // row may be behind the last one
};
__host__ __device__ inline WorkLine work_line(const WorkPlace& place, const Slab& slab, int heads) {
  if (slab.state_blocks == 0) return {place.turn, place.line};
  const int line = place.turn * slab.state_blocks + place.line;
  return {line / heads, line % heads};
}
__device__ __forceinline__ unsigned char* block_of(const Slab& slab, int row, int chunk, int heads, int head) {
  return slab.blocks + ((static_cast<std::int64_t>(row) * slab.chunks + chunk) * heads + head) * kBlockStride;
}

cudaError_t launch_factors(const StepArguments& arguments, const Slab& slab, cudaStream_t stream);
cudaError_t launch_pairs(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);
cudaError_t launch_split(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);
cudaError_t launch_state(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);

}  // namespace k3::cuda::kda::prefill_detail
