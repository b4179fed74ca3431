// The block of operands that the factor kernel of prefill.h hands to the state kernel, and the slab of chunks they
// work on.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/kda/prefill.h"
#include "kernels/cuda/kda/prefill_split.h"  // Split

namespace k3::cuda::kda::prefill_detail {

inline constexpr int kChunk = 64, kDim = 128;
inline constexpr int kPanel = kChunk * 128;  // bytes of a [64][64] bf16 panel

// Where byte `byte` of row `row` lies in a panel: 16-byte pieces are exchanged by the row (the 128-byte swizzle of
// wgmma).
__host__ __device__ constexpr int panel_offset(int row, int byte) { return row * 128 + (byte ^ ((row & 7) << 4)); }

// Tokens lie in exchanged order in the rows of every operand, and in the columns of A: token t in row exchanged(t), row
// r has token exchanged(r). The tokens 4 n + i, n = 0 to 7, of one 8 x 8 matrix of the factor kernel are then in eight
// different 16-byte columns of a panel.
__host__ __device__ constexpr int exchanged(int token) { return token ^ (token >> 3 & 3); }
// panel_offset(row ^ i, byte) = panel_offset(row, byte) ^ i * kExchange, i = 0 to 3.
inline constexpr int kExchange = 128 + 16;

// Byte offsets inside a block; a [64][128] operand is two panels. Every panel starts at a multiple of 1024.
inline constexpr int kRestoredKeys = 0, kDecayedQueries = 2 * kPanel, kWeightedKeys = 4 * kPanel,
                     kWeightedValues = 6 * kPanel;
inline constexpr int kScores = 8 * kPanel, kDecay = 9 * kPanel, kBlockBytes = 9 * kPanel + kDim * 4;
inline constexpr int kBlockStride = (kBlockBytes + 1023) / 1024 * 1024;

// What the kernels work on at a time: some chunks of some lines. A line is a row and head, number row * heads + head.
//
// state_blocks > 0: both kernels run at the same time, the factors on the other multiprocessors; the chunks are shared
// among the state blocks as in prefill_shares.cuh. The factors are made in the order in which they will be used, step
// by step of all state blocks (find_work in prefill_factors_work.cuh), by whichever block is free (`claimed`): blocks
// differ by a fifth in speed, and the state waits for the slowest; `ready` says which are there. They stay
// ahead() blocks (21 MB with 32 state blocks) ahead of the state, so that it reads from the L2: from memory it takes
// 2.2 us a chunk instead of 1.76.
struct Slab {
  int first_chunk, chunks;      // of every row
  int first_line, lines;        // all, unless state_blocks > 0
  unsigned char* blocks;        // [lines, chunks] blocks of kBlockStride bytes
  int state_blocks = 0;         // 0: the state kernel follows the factor kernel; then no flags
  uint32_t* ready = nullptr;    // [lines, chunks], zero at the start, 1 once the block is there
  uint32_t* claimed = nullptr;  // [counters(state_blocks)], zero at the start: the numbers of work taken; behind it
  int ranks = 1;  // multiprocessors of a state block: 2 share the 128 value columns (state_kernel in prefill_state.cu)
  __host__ __device__ __forceinline__ bool beside() const { return state_blocks > 0; }  // both at the same time
  __device__ __forceinline__ uint32_t* used() const { return claimed + 1; }  // the blocks that the state has read
  __device__ __forceinline__ uint32_t* left() const { return claimed + 2; }  // blocks of the factor kernel that left
  // Of a rank of a state block: its threads that have stored what it hands to that of the next one.
  __device__ __forceinline__ uint32_t* handed(int block) const { return claimed + kCommon + block; }
  static constexpr int kCommon = 3, kMostRanks = 2;  // claimed, used, left
  __host__ __device__ static constexpr int counters(int state_blocks) { return kCommon + kMostRanks * state_blocks; }
  __device__ __forceinline__ int ahead() const { return 9 * (state_blocks > 32 ? state_blocks : 32); }
  __device__ __forceinline__ std::int64_t index(int line, int chunk) const {
    return static_cast<std::int64_t>(line - first_line) * chunks + chunk;
  }
  __device__ __forceinline__ unsigned char* block(std::int64_t index) const { return blocks + index * kBlockStride; }
  __device__ __forceinline__ unsigned char* block(int line, int chunk) const { return block(index(line, chunk)); }
};

// A row's share of the slab.
struct Share {
  std::int64_t first_token, tokens;  // where it starts in the packed tensors; tokens from there to the row's end
  int chunks;                        // inside the slab; 0: none
  bool ends;                         // the row ends inside the slab
};
__device__ __forceinline__ Share share_of(const StepArguments& a, const Slab& slab, int row) {
  const std::int64_t first = a.starts[row], skipped = static_cast<std::int64_t>(slab.first_chunk) * kChunk,
                     tokens = a.starts[row + 1] - first - skipped;
  if (tokens <= 0 || a.slots[row] < 0) return {0, 0, 0, false};
  const std::int64_t chunks = (tokens + kChunk - 1) / kChunk;
  return {first + skipped, tokens, static_cast<int>(min(chunks, static_cast<std::int64_t>(slab.chunks))),
          chunks <= slab.chunks};
}

cudaError_t launch_factors(const StepArguments& arguments, const Slab& slab, cudaStream_t stream);
cudaError_t launch_pairs(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);
cudaError_t launch_split(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);
cudaError_t launch_state(const StepArguments& arguments, const Slab& slab, const Split& split, cudaStream_t stream);

}  // namespace k3::cuda::kda::prefill_detail
