// Where the factor kernel of prefill.h (prefill_factors.cu) keeps what in shared memory, and how the raw projections of
// a chunk and head get there.
#pragma once

#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/tensor_copy.cuh"
#include "kernels/cuda/kda/prefill_blocks.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

inline constexpr int kThreads = 256, kTile = 16, kTiles = kChunk / kTile, kTaps = 4, kBlocksPerSm = 2;
inline constexpr int kRawRows = kChunk + kTaps - 1;  // of q and k; row r holds token r - 3 of the chunk
inline constexpr int kRowBytes = kDim * 2;           // of a raw row

// Shared memory, byte offsets. An operand [64][128] is two panels as in prefill_blocks.cuh; kEndKeys are the six
// operands [16][128] of the tiles below the diagonal (tile_below), two panels [16][64] each.
inline constexpr int kTilePanel = kTile * 128, kTileBytes = 2 * kTilePanel;
inline constexpr int kRowsQ = 0, kSameKeys = 2 * kPanel, kEndKeys = 4 * kPanel, kRowsK = kEndKeys + 6 * kTileBytes,
                     kValues = kRowsK + 2 * kPanel;                      // W and U take the places of rows k and v
inline constexpr int kScoresOut = kValues + 2 * kPanel, kDecayOut = kScoresOut + kPanel;  // side by side in memory too
inline constexpr int kBelow = kDecayOut + kDim * 4;                      // -M below the diagonal, bf16, then its rest
inline constexpr int kBelowBytes = kTile * kTile * 2, kBelowRest = kBelow + 6 * kBelowBytes;
inline constexpr int kDiagonal = kBelowRest + 6 * kBelowBytes;           // fp32 columns of L, then bf16 T diag(beta)
inline constexpr int kColumnPitch = kTile + 4, kDiagonalBytes = kTile * kColumnPitch * 4;
inline constexpr int kTileDecay = kDiagonal + kTiles * kDiagonalBytes;   // float [kTiles][kDim]
inline constexpr int kSquares = kTileDecay + kTiles * kDim * 4;          // float [q, k][half of the channels][kChunk]
inline constexpr int kLengths = kSquares + 4 * kChunk * 4;               // float [warps][kTile][q, k]
inline constexpr int kBeta = kLengths + kThreads / 32 * kTile * 8;       // float [kChunk]
inline constexpr int kWorks = kBeta + kChunk * 4;                        // Work [3]
inline constexpr int kArrived = kWorks + 320;                             // barrier of the raw rows
inline constexpr int kSpeed = kArrived + 8;                               // float, e^a_log
inline constexpr int kSharedBytes = kArrived + 16;
// The raw rows of the next chunk take the places of the operands that die with A: q, k, z, the taps, the bias.
inline constexpr int kRawQ = 0, kRawK = kRawQ + kRawRows * kRowBytes, kRawZ = kRawK + kRawRows * kRowBytes,
                     kTapsAt = kRawZ + kChunk * kRowBytes, kBias = kTapsAt + 3 * kDim * kTaps * 4;
inline constexpr int kRawBytes = kBias + kDim * 4;
static_assert(kRawBytes <= kRowsK && kBias == kTapsAt + 3 * kDim * 16);
static_assert(kBlocksPerSm * (kSharedBytes + 1024) <= 228 * 1024);

// The thread's number, computed anew: what is derived from it is not kept in registers (and spilled) around the loop.
__device__ __forceinline__ int own_thread() {
  int thread = threadIdx.x;
  asm volatile("" : "+r"(thread));
  return thread;
}

// A chunk and head, and where its inputs lie. Strides of tokens are handled as 32-bit numbers (launch_factors checks).
struct Work {
  int index, row, slot, count;                  // index: -1 behind the last one; count: tokens of the chunk
  std::int64_t row_first, row_tokens;
  bool first;                                   // of its row: the window lies before it
  int head, token;                              // token: the chunk's first in the packed tensors
  const __nv_bfloat16 *q, *k, *z;               // at the chunk's first token
  std::int64_t v, b;                            // the same, in elements from the start of the tensor
  std::int64_t window, block;                   // elements to the head's part of the window, bytes to the block
};
__device__ __forceinline__ const __nv_bfloat16* at_raw(const Rows& raw, std::int64_t elements) {
  return static_cast<const __nv_bfloat16*>(raw.data) + elements;
}
// The first chunk with tokens at or after `index`, in steps of the grid; `last` is the chunk before, or has row -1.
__device__ __forceinline__ void find_work(Work& w, const Work& last, int index, const StepArguments& a,
                                          const Slab& slab) {
  const int total = a.rows * slab.chunks * a.heads;
  w = last;
  w.index = -1;
  if (last.row >= 0 && last.index < 0) return;  // nothing was left
  for (; index < total; index += static_cast<int>(gridDim.x)) {
    const int head = index % a.heads, chunk = index / a.heads % slab.chunks, row = index / a.heads / slab.chunks;
    if (row != w.row) {
      w.row = row, w.slot = a.slots[row], w.row_first = a.starts[row];
      w.row_tokens = a.starts[row + 1] - w.row_first;
    }
    const std::int64_t offset = (static_cast<std::int64_t>(slab.first_chunk) + chunk) * kChunk;
    if (w.slot < 0 || offset >= w.row_tokens) continue;
    const auto at_chunk = [&](const Rows& raw) {
      return (w.row_first + offset) * raw.token_stride + head * raw.head_stride;
    };
    w.index = index, w.first = offset == 0;
    w.count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), w.row_tokens - offset));
    w.q = at_raw(a.q, at_chunk(a.q)), w.k = at_raw(a.k, at_chunk(a.k)), w.z = at_raw(a.z, at_chunk(a.z));
    w.v = at_chunk(a.v), w.b = at_chunk(a.b);
    w.window = (std::int64_t{9} * w.slot * a.heads + head) * kDim, w.head = head;
    w.token = static_cast<int>(w.row_first + offset);
    w.block = block_of(slab, row, chunk, a.heads, head) - slab.blocks;
    return;
  }
}

// `rows` rows of `stride` bytes on.
__device__ __forceinline__ const __nv_bfloat16* on(const __nv_bfloat16* row, int rows, int stride) {
  return reinterpret_cast<const __nv_bfloat16*>(reinterpret_cast<const unsigned char*>(row) +
                                                static_cast<std::int64_t>(rows) * stride);
}
// Raw token `token` - 3 of the window, 0 = q, 1 = k, 2 = v.
__device__ __forceinline__ const __nv_bfloat16* window_row(const StepArguments& a, const Work& w, int which,
                                                           int token) {
  return static_cast<const __nv_bfloat16*>(a.window) + w.window +
         static_cast<std::int64_t>(token * 3 + which) * a.heads * kDim;
}

// Starts the copies of q, k, z, taps and bias of a chunk that ends with its row; the rows behind stay as they are.
__device__ __forceinline__ void fetch(unsigned char* shared, const StepArguments& a, const Work& w, int thread) {
  const int row = thread / 16, part = thread % 16;
  unsigned char* to = shared + row * kRowBytes + 16 * part;
#pragma unroll
  for (int which = 0; which < 3; ++which) {
    const int halo = which == 2 ? 0 : kTaps - 1, rows = w.count + halo;
    const int stride = 2 * static_cast<int>((which == 0 ? a.q : which == 1 ? a.k : a.z).token_stride);
    const __nv_bfloat16* from = on(which == 0 ? w.q : which == 1 ? w.k : w.z, row - halo, stride) + 8 * part;
    unsigned char* there = to + (which == 0 ? kRawQ : which == 1 ? kRawK : kRawZ);
    for (int turn = 0; 16 * turn + row < rows; ++turn) {
      const __nv_bfloat16* at = on(from, 16 * turn, stride);
      if (turn == 0 && w.first && row < halo) at = window_row(a, w, which, row) + 8 * part;
      copy_async_16(there + 16 * turn * kRowBytes, at);
    }
  }
  for (int piece = thread; piece < 3 * kDim + kDim / 4; piece += kThreads) {  // taps of a channel, bias of four
    const std::int64_t channel = static_cast<std::int64_t>(piece / kDim * a.heads + w.head) * kDim + piece % kDim;
    const float* bias = a.dt_bias + w.head * kDim + 4 * (piece - 3 * kDim);
    copy_async_16(shared + kTapsAt + 16 * piece, piece < 3 * kDim ? a.taps + channel * kTaps : bias);
  }
  copy_async_commit();
}
// The same for a chunk of 64 tokens, by the copy engine: one copy each by the first lanes of seven warps. Before the
// first chunk of a row the copies bring other tokens than the window's: patch_window.
struct InputMaps {
  HeadMap q, k, z;
};
__device__ __forceinline__ void fetch_boxes(uint32_t address, const StepArguments& a, const InputMaps& maps,
                                            const Work& w, int warp) {
  const uint32_t barrier = address + kArrived;
  if (warp == 0) {
    barrier_arrive_expect(barrier, kRawBytes);
    copy_head_in(address + kRawQ, maps.q, w.head, w.token - (kTaps - 1), barrier);
  } else if (warp == 1) {
    copy_head_in(address + kRawK, maps.k, w.head, w.token - (kTaps - 1), barrier);
  } else if (warp == 2) {
    copy_head_in(address + kRawZ, maps.z, w.head, w.token, barrier);
  } else if (warp < 6) {
    const int which = warp - 3;
    const std::int64_t first = static_cast<std::int64_t>(which * a.heads + w.head) * kDim * kTaps;
    bulk_copy_in(address + kTapsAt + which * kDim * kTaps * 4, a.taps + first, kDim * kTaps * 4, barrier);
  } else if (warp == 6) {
    bulk_copy_in(address + kBias, a.dt_bias + w.head * kDim, kDim * 4, barrier);
  }
}
__device__ __forceinline__ void patch_window(unsigned char* shared, const StepArguments& a, const Work& w, int thread) {
  const int which = thread / 48, row = thread / 16 % 3, part = thread % 16;
  if (thread < 96)
    *reinterpret_cast<uint4*>(shared + (which ? kRawK : kRawQ) + row * kRowBytes + 16 * part) =
        *reinterpret_cast<const uint4*>(window_row(a, w, which, row) + 8 * part);
}
// Raw v of this thread's two channels and tile, three tokens more in front.
__device__ __forceinline__ void fetch_values(uint32_t (&x)[kTile + 3], const StepArguments& a, const Work& w, int row0,
                                             int channel) {
  const int stride = 2 * static_cast<int>(a.v.token_stride), rows = w.count - row0 + 3;
  const __nv_bfloat16* from = on(at_raw(a.v, w.v), row0 - 3, stride) + channel;
  if (rows >= kTile + 3 && (row0 > 0 || !w.first)) {
#pragma unroll
    for (int i = 0; i < kTile + 3; ++i) x[i] = *reinterpret_cast<const uint32_t*>(on(from, i, stride));
  } else {
#pragma unroll
    for (int i = 0; i < kTile + 3; ++i) {
      const __nv_bfloat16* at = i < 3 && row0 == 0 && w.first ? window_row(a, w, 2, i) + channel : on(from, i, stride);
      x[i] = i < rows ? *reinterpret_cast<const uint32_t*>(at) : 0u;
    }
  }
}
static_assert(3 * sizeof(Work) <= kArrived - kWorks);

// Asks the L2 for the raw rows of a chunk: v by rows of 256 bytes, the others by boxes.
__device__ __forceinline__ void announce(const StepArguments& a, const InputMaps& maps, const Work& w, int thread) {
  if (w.count < kChunk) return;
  if (thread == 0) prefetch_head(maps.q, w.head, w.token - (kTaps - 1));
  if (thread == 32) prefetch_head(maps.k, w.head, w.token - (kTaps - 1));
  if (thread == 64) prefetch_head(maps.z, w.head, w.token);
  if (const int token = thread - 128; token >= 0 && token < kChunk) {
    const __nv_bfloat16* row = on(at_raw(a.v, w.v), token, 2 * static_cast<int>(a.v.token_stride));
    prefetch_l2(row), prefetch_l2(row + kDim / 2);
  }
}

}  // namespace k3::cuda::kda::prefill_detail::factors
