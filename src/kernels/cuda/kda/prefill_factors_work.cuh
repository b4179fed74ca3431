// Where the factor kernel of prefill.h (prefill_factors.cu) keeps what in shared memory, and how the raw projections of
// a chunk and head get there.
#pragma once

#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/tensor_copy.cuh"
#include "kernels/cuda/kda/prefill_blocks.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

inline constexpr int kThreads = 256, kTile = 16, kTiles = kChunk / kTile, kTaps = 4;
inline constexpr int kRing = 4;                      // works a worker remembers
inline constexpr int kRawRows = kChunk + kTaps - 1;  // of q, k and v; row r holds token r - 3 of the chunk
inline constexpr int kRowBytes = kDim * 2;           // of a raw row

// A worker's shared memory, byte offsets. An operand [64][128] is two panels as in prefill_blocks.cuh; kEndKeys is an
// operand [32][128], two panels [32][64].
inline constexpr int kTilePanel = kTile * 128, kTileBytes = 2 * kTilePanel;
inline constexpr int kRowsQ = 0, kSameKeys = 2 * kPanel, kEndKeys = 4 * kPanel;
// The raw rows of the next chunk take the places of the operands that die with A: q, k, z, the taps, the bias.
inline constexpr int kRawQ = 0, kRawK = kRawQ + kRawRows * kRowBytes, kRawZ = kRawK + kRawRows * kRowBytes,
                     kTapsAt = kRawZ + kChunk * kRowBytes, kBias = kTapsAt + 3 * kDim * kTaps * 4,
                     kRawBytes = kBias + kDim * 4;
// Raw v comes later, to the place of rows k, its three rows of earlier tokens ahead of it.
inline constexpr int kRowsK = (kRawBytes + 1023) / 1024 * 1024 + 1024, kRawV = kRowsK - (kTaps - 1) * kRowBytes;
inline constexpr int kValues = kRowsK + 2 * kPanel;                      // W and U take the places of rows k and v
inline constexpr int kScoresOut = kValues + 2 * kPanel, kDecayOut = kScoresOut + kPanel;  // side by side in memory too
inline constexpr int kBelow = kDecayOut + kDim * 4;                      // -M below the diagonal, bf16, then its rest
inline constexpr int kBelowBytes = kTile * kTile * 2, kBelowRest = kBelow + 6 * kBelowBytes;
inline constexpr int kDiagonal = kBelowRest + 6 * kBelowBytes;           // fp32 columns of L, then bf16 T diag(beta)
inline constexpr int kColumnPitch = kTile + 4, kDiagonalBytes = kTile * kColumnPitch * 4;
inline constexpr int kTileDecay = kDiagonal + kTiles * kDiagonalBytes;   // float [kTiles][kDim]
inline constexpr int kBeta = kTileDecay + kTiles * kDim * 4;             // float [kChunk]
inline constexpr int kWorks = kBeta + kChunk * 4, kWorksBytes = 448;     // Work [kRing]
inline constexpr int kArrived = kWorks + kWorksBytes, kValuesArrived = kArrived + 8;  // barriers of the raw rows
inline constexpr int kWorkerBytes = (kValuesArrived + 8 + 1023) / 1024 * 1024;
// Until step 3, in the place of M:
inline constexpr int kSquares = kBelow;                                  // float [q, k][half of the channels][kChunk]
inline constexpr int kLengths = kSquares + 4 * kChunk * 4;               // float [warps][kTile][q, k]
static_assert(kEndKeys + 2 * kTileBytes <= kRawBytes && kRawBytes <= kRawV && kRawV % 128 == 0);
static_assert(kLengths + kThreads / 32 * kTile * 8 <= kDiagonal);
static_assert(2 * (kWorkerBytes + 1024) <= 228 * 1024);  // two blocks of one worker or one of two

// The thread's number in its worker, computed anew: what is derived from it is not kept in registers (and spilled)
// around the loop. Unsigned, so that divisions are shifts.
__device__ __forceinline__ unsigned own_thread() { return opaque(threadIdx.x % kThreads); }
__device__ __forceinline__ unsigned own_worker() { return threadIdx.x / kThreads; }
// The worker's barrier; and its second one, of the end of a chunk: all but one warp only arrive there.
__device__ __forceinline__ int own_barrier() { return 1 + static_cast<int>(own_worker()); }
__device__ __forceinline__ void await_worker() { named_barrier<kThreads>(own_barrier()); }
__device__ __forceinline__ void arrive_at_end() { named_barrier_arrive<kThreads>(2 + own_barrier()); }
__device__ __forceinline__ void await_end() { named_barrier<kThreads>(2 + own_barrier()); }
// The barrier of two warps, one of which only arrives.
__device__ __forceinline__ int pair_barrier(int pair) { return 5 + 2 * static_cast<int>(own_worker()) + pair; }
__device__ __forceinline__ void await_pair(int pair) { named_barrier<64>(pair_barrier(pair)); }
__device__ __forceinline__ void arrive_pair(int pair) { named_barrier_arrive<64>(pair_barrier(pair)); }
// The worker's part of the shared memory.
__device__ __forceinline__ unsigned char* own_shared() {
  return shared_memory<unsigned char>() + own_worker() * kWorkerBytes;
}

// The two channels and the tile of a thread; a scheduler has two tiles, one of each half of the chunk.
struct Place {
  int warp, lane, tile, channel;
  __device__ __forceinline__ explicit Place(unsigned thread)
      : warp(static_cast<int>(thread / 32)), lane(static_cast<int>(thread % 32)),
        tile(static_cast<int>(thread / 64 ^ thread / 128)), channel(static_cast<int>(thread % 64 * 2)) {}
  // Of the tile in a [64][128] operand of two panels, and of the channels in a row of a panel.
  __device__ __forceinline__ int operand() const { return channel / 64 * kPanel + tile * kTilePanel; }
  __device__ __forceinline__ int byte() const { return channel % 64 * 2; }
};

// A chunk and head, and where its inputs lie. Strides of tokens are handled as 32-bit numbers (launch_factors checks).
struct Work {
  int index, row, slot, count;                  // index: -1 behind the last one; count: tokens of the chunk
  std::int64_t row_first, row_tokens;
  bool first;                                   // of its row: the window lies before it
  int head, token, flag;                        // token: the first in the packed tensors; flag: the place in `ready`
  const __nv_bfloat16 *q, *k, *v, *z;           // at the chunk's first token
  std::int64_t b;                               // the same, in elements from the start of the tensor
  std::int64_t window, block;                   // elements to the head's part of the window, bytes to the block
};
__device__ __forceinline__ const __nv_bfloat16* at_raw(const Rows& raw, std::int64_t elements) {
  return static_cast<const __nv_bfloat16*>(raw.data) + elements;
}
// The first chunk with tokens at or after `index` in the order of work_place(), in steps of the number of workers;
// `last` is the chunk before, or has row -1.
__device__ __forceinline__ void find_work(Work& w, const Work& last, int index, int step, const StepArguments& a,
                                          const Slab& slab) {
  const int total = static_cast<int>(work_count(slab, a.rows, a.heads));
  w = last;
  w.index = -1;
  if (last.row >= 0 && last.index < 0) return;  // nothing was left
  for (; index < total; index += step) {
    const auto [row, chunk, head] = work_place(slab, a.rows, a.heads, index);
    if (row >= a.rows) continue;
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
    w.v = at_raw(a.v, at_chunk(a.v)), w.b = at_chunk(a.b);
    w.window = (std::int64_t{9} * w.slot * a.heads + head) * kDim, w.head = head;
    w.token = static_cast<int>(w.row_first + offset);
    w.flag = (row * slab.chunks + chunk) * a.heads + head;
    w.block = static_cast<std::int64_t>(w.flag) * kBlockStride;
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

// Starts the copies of raw rows of a chunk that ends with its row; the rows behind become zeros. `which` as in
// window_row, 3 = z.
__device__ __forceinline__ void fetch_rows(unsigned char* to, const StepArguments& a, const Work& w,
                                           const __nv_bfloat16* from, const Rows& raw, int which, unsigned thread) {
  const int row = static_cast<int>(thread / 16), part = static_cast<int>(thread % 16),
            halo = which == 3 ? 0 : kTaps - 1, stride = 2 * static_cast<int>(raw.token_stride);
  from = on(from, row - halo, stride) + 8 * part;
  to += row * kRowBytes + 16 * part;
  for (int turn = 0; kThreads / 16 * turn + row < kChunk + halo; ++turn) {
    const __nv_bfloat16* at = on(from, kThreads / 16 * turn, stride);
    unsigned char* there = to + kThreads / 16 * turn * kRowBytes;
    if (turn == 0 && w.first && row < halo) at = window_row(a, w, which, row) + 8 * part;
    if (kThreads / 16 * turn + row < w.count + halo) copy_async_16(there, at);
    else *reinterpret_cast<uint4*>(there) = make_uint4(0, 0, 0, 0);
  }
}
// Those of q, k and z, with taps and bias.
__device__ __forceinline__ void fetch(unsigned char* shared, const StepArguments& a, const Work& w, unsigned thread) {
  fetch_rows(shared + kRawQ, a, w, w.q, a.q, 0, thread);
  fetch_rows(shared + kRawK, a, w, w.k, a.k, 1, thread);
  fetch_rows(shared + kRawZ, a, w, w.z, a.z, 3, thread);
  // A piece: the taps of a channel or the bias of four.
  for (int piece = static_cast<int>(thread); piece < 3 * kDim + kDim / 4; piece += kThreads) {
    const std::int64_t channel = static_cast<std::int64_t>(piece / kDim * a.heads + w.head) * kDim + piece % kDim;
    const float* bias = a.dt_bias + w.head * kDim + 4 * (piece - 3 * kDim);
    copy_async_16(shared + kTapsAt + 16 * piece, piece < 3 * kDim ? a.taps + channel * kTaps : bias);
  }
  copy_async_commit();
  if (thread == 0) barrier_arrive(shared_address(shared) + kArrived);  // its phases count the chunks
}
// The same for a chunk of 64 tokens, by the copy engine: copies by the first lanes of three warps. Before the first
// chunk of a row the copies bring other tokens than the window's: patch_window.
struct InputMaps {
  HeadMap q, k, v, z;
};
__device__ __forceinline__ void fetch_boxes(uint32_t address, const StepArguments& a, const InputMaps& maps,
                                            const Work& w, unsigned thread) {
  if (thread >= 96 || thread % 32 != 0) return;
  const int which = static_cast<int>(thread / 32);
  const uint32_t barrier = address + kArrived;
  if (which == 0) barrier_arrive_expect(barrier, kRawBytes);
  copy_head_in(address + (which == 0 ? kRawQ : which == 1 ? kRawK : kRawZ),
               which == 0 ? maps.q : which == 1 ? maps.k : maps.z, w.head, w.token - (which == 2 ? 0 : kTaps - 1),
               barrier);
  const std::int64_t taps = static_cast<std::int64_t>(which * a.heads + w.head) * kDim * kTaps;
  bulk_copy_in(address + kTapsAt + which * kDim * kTaps * 4, a.taps + taps, kDim * kTaps * 4, barrier);
  if (which == 0) bulk_copy_in(address + kBias, a.dt_bias + w.head * kDim, kDim * 4, barrier);
}
// Raw v of such a chunk, by one thread, when W of the chunk before has left.
__device__ __forceinline__ void fetch_values(uint32_t address, const InputMaps& maps, const Work& w) {
  barrier_arrive_expect(address + kValuesArrived, kRawRows * kRowBytes);
  copy_head_in(address + kRawV, maps.v, w.head, w.token - (kTaps - 1), address + kValuesArrived);
}
// The window's rows in front of a row's first chunk, `which` as in window_row, at the raw rows `to`.
__device__ __forceinline__ void patch_window(unsigned char* to, const StepArguments& a, const Work& w, int which,
                                             unsigned thread) {
  const int row = static_cast<int>(thread / 16), part = static_cast<int>(thread % 16);
  if (row < kTaps - 1)
    *reinterpret_cast<uint4*>(to + row * kRowBytes + 16 * part) =
        *reinterpret_cast<const uint4*>(window_row(a, w, which, row) + 8 * part);
  async_proxy_fence();
}
static_assert(kRing * sizeof(Work) <= kWorksBytes);

// Asks the L2 for the raw rows of a chunk: one thread.
__device__ __forceinline__ void announce(const InputMaps& maps, const Work& w) {
  if (w.index < 0 || w.count < kChunk) return;
  prefetch_head(maps.q, w.head, w.token - (kTaps - 1));
  prefetch_head(maps.k, w.head, w.token - (kTaps - 1));
  prefetch_head(maps.z, w.head, w.token);
  prefetch_head(maps.v, w.head, w.token - (kTaps - 1));
}

}  // namespace k3::cuda::kda::prefill_detail::factors
