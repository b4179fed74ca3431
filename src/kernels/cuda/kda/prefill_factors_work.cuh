// Where the factor kernel of prefill.h (prefill_factors.cu) keeps what in shared memory, and how the raw projections of
// a chunk and head get there.
#pragma once

#include "kernels/cuda/common/cache_hints.cuh"
#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/tensor_copy.cuh"
#include "kernels/cuda/kda/prefill_shares.cuh"

namespace k3::cuda::kda::prefill_detail::factors {

inline constexpr int kThreads = 256, kWarps = kThreads / 32, kTile = 16, kTiles = kChunk / kTile, kTaps = 4;
inline constexpr int kFinder = 32, kSender = 96;      // threads, see prefill_factors.cu
inline constexpr int kRing = 4;                      // works a block remembers
inline constexpr int kRowBytes = kDim * 2;           // of a raw row
// Raw rows lie in two panels of 64 channels, one behind the other, swizzled by the address (tensor_copy.cuh): tokens
// 4 n + i at row kRawPitch i + n + 1, n = -1 being the group before the chunk (q, k and v), or 16 i + n (z).
inline constexpr int kGroup = 4, kGroups = kChunk / kGroup, kRawPitch = kGroups + 1, kRawRows = kGroup * kRawPitch;
inline constexpr int kRawPanel = kRawRows * 128;

// Shared memory, byte offsets. An operand [64][128] is two panels as in prefill_blocks.cuh. kLowerKeys has
// the end k of the first half and the same k of the second, kFirstKeys the same k of the first half, two panels
// [32][64].
inline constexpr int kTilePanel = kTile * 128, kTileBytes = 2 * kTilePanel;
inline constexpr int kRowsQ = 0, kLowerKeys = 2 * kPanel, kFirstKeys = 4 * kPanel;
// The raw rows of the next chunk take the places of the operands that die with A: q, k, z, the taps, the bias.
inline constexpr int kRawQ = 0, kRawK = kRawQ + kRawRows * kRowBytes, kRawZ = kRawK + kRawRows * kRowBytes,
                     kTapsAt = kRawZ + kChunk * kRowBytes, kBias = kTapsAt + 3 * kDim * kTaps * 4,
                     kRawBytes = kBias + kDim * 4;
// Raw v comes later, to the place of rows k and what lies ahead of it.
inline constexpr int kRowsK = (kRawBytes + 1023) / 1024 * 1024 + 1024, kRawV = kRowsK - kGroup * kRowBytes;
static_assert(kRawQ % 1024 == 0 && kRawK % 1024 == 0 && kRawV % 1024 == 0 && kRawZ % 1024 == 0);
inline constexpr int kValues = kRowsK + 2 * kPanel;                      // W and U take the places of rows k and v
inline constexpr int kScoresOut = kValues + 2 * kPanel, kDecayOut = kScoresOut + kPanel;  // side by side in memory too
inline constexpr int kBelow = kDecayOut + kDim * 4;                      // -M below the diagonal, bf16, then its rest
inline constexpr int kBelowBytes = kTile * kTile * 2, kBelowRest = kBelow + 6 * kBelowBytes;
inline constexpr int kDiagonal = kBelowRest + 6 * kBelowBytes;           // fp32 columns of L, then bf16 T diag(beta)
// Pitches that bring what a warp reads or writes at once to different banks.
inline constexpr int kColumnPitch = kTile + 4, kDiagonalBytes = kTile * kColumnPitch * 4 + 32, kDecayPitch = kDim + 8;
inline constexpr int kTileDecay = kDiagonal + kTiles * kDiagonalBytes;   // float [kTiles][kDecayPitch]
inline constexpr int kBeta = kTileDecay + kTiles * kDecayPitch * 4;             // float [kChunk]
inline constexpr int kWorks = kBeta + kChunk * 4, kWorksBytes = 448;     // Work [kRing]
inline constexpr int kArrived = kWorks + kWorksBytes, kValuesArrived = kArrived + 8;  // barriers of the raw rows
inline constexpr int kSquared = kValuesArrived + 8, kOperandsRead = kSquared + 8;      // of the squares; in step 3
inline constexpr int kScored = kOperandsRead + 8;                                      // of step 3
inline constexpr int kWritten = kScored + 8, kPatienceAt = kWritten + 8, kPatience = 200;  // looks for the state
inline constexpr int kShares = kPatienceAt + 16;                                       // Shares
inline constexpr int kSharedBytes = (kShares + static_cast<int>(sizeof(Shares)) + 1023) / 1024 * 1024;
// Until step 2, in the place of M: sums of squares of k and q over a warp's channels, float [kWarps][kSquaresPitch][2]
// with a tile's tokens at kSquaresTile, and in that of L 1 / |k| and dim^-1/2 / |q|, float [kChunk][2], tile by tile.
inline constexpr int kSquaresTile = kTile + 4, kSquaresPitch = kTiles * kSquaresTile + 2, kSquares = kBelow,
                     kLengths = kScoresOut + 2 * kPanel;
// In step 2, on their way out: Qd in the place of raw z and of the taps; Kb in the place of A, M and some of L.
inline constexpr int kQueriesOut = kFirstKeys + 2 * kTileBytes, kRestoredOut = kScoresOut;
static_assert(kQueriesOut % 1024 == 0 && kQueriesOut + 2 * kPanel <= kRawV && kRawBytes <= kRawV && kRawV % 128 == 0);
static_assert(kSquares + kWarps * kSquaresPitch * 8 <= kLengths && kRestoredOut + 2 * kPanel <= kLengths &&
              kLengths + kChunk * 8 <= kTileDecay);
static_assert(2 * (kSharedBytes + 1024) <= 228 * 1024);
// W, U, A and the decays leave in one copy.
static_assert(kValues - kRowsK == kWeightedValues - kWeightedKeys && kScoresOut - kRowsK == kScores - kWeightedKeys &&
              kDecayOut - kRowsK == kDecay - kWeightedKeys);

// The thread's number, computed anew: what is derived from it is not kept in registers (and spilled) around the loop.
// Unsigned, so that divisions are shifts.
__device__ __forceinline__ unsigned own_thread() { return opaque(threadIdx.x % kThreads); }
__device__ __forceinline__ unsigned char* own_shared() { return shared_memory<unsigned char>(); }
// The block's barriers: in front of step 2, and where a chunk does not come in boxes; in front of step 3.
__device__ __forceinline__ void await_block() { named_barrier<kThreads>(1); }
__device__ __forceinline__ void await_operands() { named_barrier<kThreads>(2); }
// In front of step 4 (parity: of the chunk). As a named barrier racecheck reports, once in a run and not in every run,
// that the warps that are first here did not wait for the last one.
__device__ __forceinline__ void await_scores(uint32_t address, unsigned parity) {
  barrier_arrive(address + kScored);
  barrier_wait(address + kScored, parity);
}
// Of the end of a chunk: all but one warp only arrive there.
__device__ __forceinline__ void arrive_at_end() { named_barrier_arrive<kThreads>(3); }
__device__ __forceinline__ void await_end() { named_barrier<kThreads>(3); }
// Of three warps, two of which only arrive.
__device__ __forceinline__ void await_pair(int pair) { named_barrier<96>(4 + pair); }
__device__ __forceinline__ void arrive_pair(int pair) { named_barrier_arrive<96>(4 + pair); }

// Byte `byte` of row `row` of a [16][16] bf16 tile: eight rows of one half lie in eight different 16-byte columns.
__device__ __forceinline__ int small_offset(int row, int byte) { return row * 32 + (byte ^ ((row >> 2 & 1) << 4)); }

// A chunk and head, and where its inputs lie. Strides of tokens are handled as 32-bit numbers (launch_factors checks).
struct alignas(16) Work {
  int number;                              // in the order of find_work
  int walk, walk_first, walk_end;          // a row that the numbers have come to, its first one and the first behind it
  int row, slot, head, count;              // count: tokens of the chunk; 0 behind the last one
  int token, block;                        // the first in the packed tensors; the index of the block
  int path;                                // how its raw rows come, see below
  int row_first, row_tokens;               // of the row: its first token, and how many
};
// Paths: by the copy engine, a chunk of 64 tokens with a group of tokens before it in the packed tensors; the same at
// the start of a row, where the copies bring other tokens than the window's; row by row; not at all, behind the last
// one.
inline constexpr int kBoxes = 0, kFirstBoxes = 1, kByRows = 2, kNone = 3;
__device__ __forceinline__ bool in_boxes(int path) { return path <= kFirstBoxes; }
// The row of w.number where state_blocks is 0, from the row that w has on: the lanes look at 32 rows at once. False:
// there is none.
__device__ __forceinline__ bool find_row(Work& w, const StepArguments& a, const Slab& slab) {
  while (w.number >= w.walk_end) {
    const int row = w.walk + 1 + static_cast<int>(own_thread() % 32),
              places = row < a.rows ? a.heads * share_of(a, slab, row).chunks : 0;
    for (int i = 0; i < 32 && w.number >= w.walk_end; ++i)
      ++w.walk, w.walk_first = w.walk_end, w.walk_end += shuffle(places, i);
    if (w.walk >= a.rows) return false;
  }
  return true;
}
// Numbers are dealt out in turn; or, with Slab::claimed, taken by whoever is free: the next one.
__device__ __forceinline__ uint32_t claim(const Slab& slab) { return slab.claimed ? atomicAdd(slab.claimed, 1u) : 0; }
// The number behind `last`; claimed: by the first lane of the warp.
__device__ __forceinline__ int next_number(const Work& last, uint32_t claimed, const Slab& slab) {
  return slab.claimed ? shuffle(static_cast<int>(claimed), 0) : last.number + static_cast<int>(gridDim.x);
}
// The work of a number: in order of rows, in a row chunk by chunk, in a chunk head by head; or, of step n and state
// block s, n * state_blocks + s. `last` is the chunk before; at the start it has row and walk -1, walk_end 0 and
// tokens. A whole warp walks, so that no lane is ahead of the others; its first lane writes.
__device__ __forceinline__ void find_work(Work& to, const Work& last, int number, const StepArguments& a,
                                          const Slab& slab, const Shares& shares) {
  Work w = last;
  w.number = number, w.count = 0, w.path = kNone;
  while (last.count > 0) {
    LineChunk at;
    if (slab.beside()) {
      const int step = shares.blocks.divide(w.number), block = w.number - step * slab.state_blocks,
                end = shares.end(block), steps = end - shares.begin(block);
      if (step >= shares.each) break;
      if (step >= steps) {  // nothing to wait for
        if (own_thread() % 32 == 0) atomicAdd(slab.used(), 1u);
        w.number = next_number(w, own_thread() % 32 == 0 ? claim(slab) : 0, slab);
        continue;
      }
      at = find_step(shares, a, slab, end, steps, step, static_cast<int>(own_thread() % 32));
    } else {
      if (!find_row(w, a, slab)) break;
      const int place = w.number - w.walk_first, chunk = shares.heads.divide(place);
      at = {w.walk, w.walk * a.heads + place - chunk * a.heads, chunk};
    }
    if (at.row != w.row) {
      w.row = at.row, w.slot = a.slots[w.row], w.row_first = a.starts[w.row];
      w.row_tokens = a.starts[w.row + 1] - w.row_first;
    }
    const int offset = (slab.first_chunk + at.chunk) * kChunk;
    w.head = at.line - w.row * a.heads;
    w.count = min(kChunk, w.row_tokens - offset), w.token = w.row_first + offset;
    w.path = w.count < kChunk || w.token < kGroup ? kByRows : offset == 0 ? kFirstBoxes : kBoxes;
    w.block = static_cast<int>(slab.index(at.line, at.chunk));
    break;
  }
  if (own_thread() % 32 == 0) to = w;
  __syncwarp();
}

// `rows` rows of `stride` bytes on.
__device__ __forceinline__ const __nv_bfloat16* on(const __nv_bfloat16* row, int rows, int stride) {
  return reinterpret_cast<const __nv_bfloat16*>(reinterpret_cast<const unsigned char*>(row) +
                                                static_cast<std::int64_t>(rows) * stride);
}
// Raw token `token` - 3 of the window, 0 = q, 1 = k, 2 = v.
__device__ __forceinline__ const __nv_bfloat16* window_row(const StepArguments& a, const Work& w, int which,
                                                           int token) {
  return static_cast<const __nv_bfloat16*>(a.window) +
         ((std::int64_t{9} * w.slot + token * 3 + which) * a.heads + w.head) * kDim;
}

// Where 16-byte piece `piece` of the raw row of a token of the chunk lies, of the two panels at `panels`; pitch:
// kRawPitch or, of z, kGroups.
__device__ __forceinline__ unsigned char* raw_place(unsigned char* panels, int pitch, int token, int piece) {
  const int row = (token & 3) * pitch + (token >> 2) + pitch - kGroups;
  unsigned char* place = panels + (piece / 8 * kGroup * pitch + row) * 128;
  return place + swizzled_piece(shared_address(place), piece % 8);
}

// Starts the copies of raw rows of a chunk that ends with its row; the rows behind become zeros. `which` as in
// window_row, 3 = z.
__device__ __forceinline__ void fetch_rows(unsigned char* to, const StepArguments& a, const Work& w,
                                           const Rows& raw, int which, unsigned thread) {
  const int row = static_cast<int>(thread / 16), part = static_cast<int>(thread % 16),
            halo = which == 3 ? 0 : kTaps - 1, stride = 2 * static_cast<int>(raw.token_stride);
  const __nv_bfloat16* from = static_cast<const __nv_bfloat16*>(raw.data) + w.token * raw.token_stride +
                              w.head * raw.head_stride;
  from = on(from, row - halo, stride) + 8 * part;
  for (int turn = 0; kThreads / 16 * turn + row < kChunk + halo; ++turn) {
    const __nv_bfloat16* at = on(from, kThreads / 16 * turn, stride);
    unsigned char* there =
        raw_place(to, which == 3 ? kGroups : kRawPitch, kThreads / 16 * turn + row - halo, part);
    if (turn == 0 && w.token == w.row_first && row < halo) at = window_row(a, w, which, row) + 8 * part;
    if (kThreads / 16 * turn + row < w.count + halo) copy_async_16(there, at);
    else *reinterpret_cast<uint4*>(there) = make_uint4(0, 0, 0, 0);
  }
}
// Those of q, k and z, with taps and bias.
__device__ __forceinline__ void fetch(unsigned char* shared, const StepArguments& a, const Work& w, unsigned thread) {
  fetch_rows(shared + kRawQ, a, w, a.q, 0, thread);
  fetch_rows(shared + kRawK, a, w, a.k, 1, thread);
  fetch_rows(shared + kRawZ, a, w, a.z, 3, thread);
  // A piece: the taps of a channel or the bias of four.
  for (int piece = static_cast<int>(thread); piece < 3 * kDim + kDim / 4; piece += kThreads) {
    const std::int64_t channel = static_cast<std::int64_t>(piece / kDim * a.heads + w.head) * kDim + piece % kDim;
    const float* bias = a.dt_bias + w.head * kDim + 4 * (piece - 3 * kDim);
    copy_async_16(shared + kTapsAt + 16 * piece, piece < 3 * kDim ? a.taps + channel * kTaps : bias);
  }
  copy_async_commit();
  if (thread == 0) barrier_arrive(shared_address(shared) + kArrived);  // its phases count the chunks
}
struct InputMaps {
  HeadMap q, k, v, z;
};
// The same by the copy engine, by the first lanes of three warps with little to do in step 3: what comes to the place
// of Qd by the one that has seen it leave. streaming: of the raw rows (cache_policy).
static_assert(kRawZ <= kQueriesOut);
__device__ __forceinline__ void fetch_boxes(uint32_t address, const StepArguments& a, const InputMaps& maps,
                                            const Work& w, bool streaming, unsigned thread) {
  if (thread % 32 != 0) return;
  const uint64_t policy = cache_policy(streaming);
  const uint32_t barrier = address + kArrived;
  const int head = w.head, token = w.token;
  const auto panels = [&](int to, int bytes, const HeadMap& map, int first) {
    copy_head_in(address + to, map, 0, head, first, barrier, policy);
    copy_head_in(address + to + bytes, map, 1, head, first, barrier, policy);
  };
  const auto taps = [&](int which) {
    constexpr int kBytes = kDim * kTaps * 4;
    bulk_copy_in(address + kTapsAt + which * kBytes,
                 a.taps + static_cast<std::int64_t>(which * a.heads + head) * kDim * kTaps, kBytes, barrier);
  };
  switch (thread / 32) {
    case kSender / 32:
      panels(kRawZ, kPanel, maps.z, token);
      taps(0), taps(1), taps(2);
      bulk_copy_in(address + kBias, a.dt_bias + head * kDim, kDim * 4, barrier);
      break;
    case 4: panels(kRawQ, kRawPanel, maps.q, token - kGroup); break;
    case 5:
      barrier_arrive_expect(barrier, kRawBytes);
      panels(kRawK, kRawPanel, maps.k, token - kGroup);
  }
}
// Raw v of such a chunk, by one thread, when W of the chunk before has left.
__device__ __forceinline__ void fetch_values(uint32_t address, const InputMaps& maps, const Work& w,
                                             bool streaming) {
  const uint64_t policy = cache_policy(streaming);
  const int head = w.head, token = w.token - kGroup;
  barrier_arrive_expect(address + kValuesArrived, kRawRows * kRowBytes);
  for (int panel = 0; panel < 2; ++panel)
    copy_head_in(address + kRawV + panel * kRawPanel, maps.v, panel, head, token, address + kValuesArrived, policy);
}
// The window's rows in front of a row's first chunk, `which` as in window_row, at the raw rows `to`.
__device__ __forceinline__ void patch_window(unsigned char* to, const StepArguments& a, const Work& w, int which,
                                             unsigned thread) {
  const int row = static_cast<int>(thread / 16), part = static_cast<int>(thread % 16);
  if (row < kTaps - 1)
    *reinterpret_cast<uint4*>(raw_place(to, kRawPitch, row - (kTaps - 1), part)) =
        *reinterpret_cast<const uint4*>(window_row(a, w, which, row) + 8 * part);
  async_proxy_fence();
}
static_assert(kRing * sizeof(Work) <= kWorksBytes && kWorks % alignof(Work) == 0 && kShares % alignof(Shares) == 0);

// Asks the L2 for the raw rows of a chunk, a panel of one of them by the first lane of every warp.
__device__ __forceinline__ void announce(const InputMaps& maps, const Work& w, unsigned thread) {
  if (thread % 32 != 0 || !in_boxes(w.path)) return;
  const int panel = static_cast<int>(thread / 32 % 2), token = w.token - kGroup;
  switch (thread / 64) {
    case 0: prefetch_head(maps.q, panel, w.head, token); break;
    case 1: prefetch_head(maps.k, panel, w.head, token); break;
    case 2: prefetch_head(maps.v, panel, w.head, token); break;
    default: prefetch_head(maps.z, panel, w.head, w.token);
  }
}
static_assert(kWarps == 8);

}  // namespace k3::cuda::kda::prefill_detail::factors
