// What the state kernel (prefill_state.cu) does beside the state: its lines, its shared memory, the feed of operand
// blocks, and the output y = o / sqrt(mean o^2 + eps) * norm_weight * sigmoid(gate).
//
// Shared memory: two stages of operands, in two parts that come and go by themselves (W and U are used a product
// earlier than the rest and are free earlier: each part is on its way for about 1.5 chunks), three places for O of a
// chunk (bf16, [token][value] in panels) and the sums of its squares, and a place of gates for every output warp.
// Bytes through shared memory a chunk (with one rank): operands in 72 KB, read by the products of two warpgroups
// 112 KB, U 16 KB, O in and out 32 KB, gates in and out 32 KB: 2100 clocks of 128 bytes, beside 1792 of the tensor
// core.
#pragma once

#include "kernels/cuda/common/cache_hints.cuh"
#include "kernels/cuda/kda/prefill_scan.cuh"
#include "kernels/cuda/kda/prefill_shares.cuh"

namespace k3::cuda::kda::prefill_detail {

// Warps: the warpgroups of the state, one warp that feeds, seven that make the output. A unit of output is 16 tokens of
// a chunk, for one warp.
inline constexpr int kOutputWarps = 7, kUnit = 16, kUnits = kChunk / kUnit;
// A warp makes kRoundValues at a time, a round; kGateRounds rounds of gates are on their way.
inline constexpr int kRoundValues = 256, kGateRounds = 4, kRoundBytes = kRoundValues * 2;

// Chunks of a row and head that a block walks.
struct Line {
  int row, head, segment;
  int first, chunks;                 // first: chunk of the slab
  std::int64_t first_token, tokens;  // of `first` in the packed tensors; tokens from there to the row's end
  bool split, last, ends;            // in segments; with the row's last chunk in the slab; and of all
  bool takes, hands;                 // the state from the block before; to the next one (prefill_shares.cuh)
};
// A block's interval of chunks: its length and its last chunk.
struct Interval {
  int chunks, line, chunk;
};
// A state block of one multiprocessor, or one of the two ranks that share its value columns: sizes, and what lies where
// in shared memory.
template <int kRanks>
struct StateMemory {
  static constexpr int kValues = kDim / kRanks, kStateThreads = 2 * kValues,
                       kThreads = kStateThreads + 32 * (1 + kOutputWarps);
  static constexpr int kRoundTokens = kRoundValues / kValues, kRounds = kUnit / kRoundTokens;
  static constexpr int kStages = 2, kOutputs = 3, kGateBytes = kGateRounds * kRoundBytes;
  static constexpr int kOwnBytes = 2 * kPanel / kRanks;  // of U and of O: the own value columns
  // Sums of squares, of all ranks: a rank's may come before the other has read those of kOutputs chunks before, but not
  // before those of twice as many (run_line).
  static constexpr int kSquares = kOutputs * kRanks, kSquareRows = kDim / 16;
  static constexpr int kSquarePitch = (kChunk + 4) * 4;  // of a warp's sums: no bank conflicts
  static constexpr int kOutputAt = kStages * kBlockStride, kGatesAt = kOutputAt + kOutputs * kOwnBytes,
                       kSquaresAt = kGatesAt + kOutputWarps * kGateBytes,
                       kBarriers = kSquaresAt + kSquares * kSquareRows * kSquarePitch,
                       kIntervalAt = kBarriers + 8 * (4 * kStages + 2 * kOutputs), kSharesAt = kIntervalAt + 16,
                       kBytes = kSharesAt + sizeof(Shares) + 1024;
  static_assert(kBytes <= 227 * 1024 && kIntervalAt % 16 == 0 && kSharesAt % alignof(Shares) == 0);

  uint32_t base;  // in shared space
  __device__ __forceinline__ uint32_t block(int n) const { return base + n % kStages * kBlockStride; }
  __device__ __forceinline__ uint32_t output(int n) const { return base + kOutputAt + n % kOutputs * kOwnBytes; }
  __device__ __forceinline__ uint32_t gates(int warp) const { return base + kGatesAt + warp * kGateBytes; }
  __device__ __forceinline__ uint32_t squares(int n) const {  // [16 values][token]
    return base + kSquaresAt + n % kSquares * kSquareRows * kSquarePitch;
  }
  __device__ __forceinline__ static int rank() { return kRanks == 1 ? 0 : static_cast<int>(blockIdx.x % kRanks); }
  // The places of chunk number n of this block, counted over all its lines: their barriers, and the parities that wait
  // until they are full and until they were emptied of what lay there before.
  __device__ __forceinline__ uint32_t early_full(int n) const { return base + kBarriers + 8 * (n % kStages); }
  __device__ __forceinline__ uint32_t early_empty(int n) const { return early_full(n) + 8 * kStages; }
  __device__ __forceinline__ uint32_t rest_full(int n) const { return early_full(n) + 16 * kStages; }
  __device__ __forceinline__ uint32_t rest_empty(int n) const { return early_full(n) + 24 * kStages; }
  __device__ __forceinline__ static uint32_t filled(int n) { return n / kStages & 1; }
  __device__ __forceinline__ static uint32_t emptied(int n) { return filled(n) ^ 1; }
  __device__ __forceinline__ uint32_t output_full(int n) const {
    return base + kBarriers + 8 * (4 * kStages + n % kOutputs);
  }
  __device__ __forceinline__ uint32_t output_read(int n) const { return output_full(n) + 8 * kOutputs; }
  __device__ __forceinline__ static uint32_t output_filled(int n) { return n / kOutputs & 1; }
  // Every thread arrives for itself: __syncwarp() and one lane would do, but racecheck does not follow that.
  __device__ __forceinline__ void init() const {
    for (int n = 0; n < kStages; ++n) {
      barrier_init(early_full(n), 1), barrier_init(early_empty(n), kStateThreads);
      barrier_init(rest_full(n), 1), barrier_init(rest_empty(n), kStateThreads);
    }
    for (int n = 0; n < kOutputs; ++n)
      barrier_init(output_full(n), kStateThreads), barrier_init(output_read(n), 32 * kUnits);
    barrier_init_fence();
  }
};

template <int kRanks, class Visit>
__device__ __forceinline__ void each_line(const StepArguments& a, const Slab& slab, const Split& split, Visit visit) {
  const bool beside = slab.beside();
  int segment = 0, left, line, end;  // chunks that are left; of the line the first one behind, 0 for all of it
  if (beside) {
    const Interval interval = *reinterpret_cast<const Interval*>(panel_bytes() + StateMemory<kRanks>::kIntervalAt);
    left = interval.chunks, line = interval.line, end = interval.chunk + 1;
  } else {
    line = slab.first_line + static_cast<int>(blockIdx.x) % slab.lines;
    segment = static_cast<int>(blockIdx.x) / slab.lines;
    end = min((segment + 1) * split.segment_chunks, share_of(a, slab, line / a.heads).chunks);
    left = end - segment * split.segment_chunks;
  }
  for (; left > 0; --line, end = 0) {
    const int row = line / a.heads, head = line - row * a.heads;
    const Share share = share_of(a, slab, row);
    if (share.chunks == 0) {
      line -= head;
      continue;
    }
    if (end == 0) end = share.chunks;
    const int chunks = min(end, left), first = end - chunks;
    const std::int64_t skipped = static_cast<std::int64_t>(first) * kChunk;
    const bool last = end == share.chunks;
    visit(Line{row, head, segment, first, chunks, share.first_token + skipped, share.tokens - skipped,
               share.chunks > split.segment_chunks, last, last && share.ends, beside && first > 0, beside && !last});
    left -= chunks;
  }
}

// A warp; its first lane copies. Early: W and U; the rest: Kb, Qd, A, the decays. Flags are read 32 chunks at a time:
// one look costs as much as a product, and the factors are usually some chunks ahead. All lanes stay together: one that
// went on to await_previous_kernel() would hold the whole warp.
// Beside the factor kernel a block that has been read is dropped before the L2 has written it to memory, where nobody
// looks for it: with y and the raw rows giving way too, 3 to 6 % at T8192 H96 (docs/tried.md).
static_assert(kWeightedValues == kWeightedKeys + 2 * kPanel && kDecayedQueries == kRestoredKeys + 2 * kPanel);
static_assert(kBlockBytes % kCacheLine == 0 && kBlockStride % kCacheLine == 0);
template <int kRanks>
__device__ __forceinline__ void feed_blocks(const StepArguments& a, const Slab& slab, const Split& split,
                                            const StateMemory<kRanks>& at) {
  // When chunk n comes into its place, the state has put out chunk n - 3, and for that the output of chunk n - 6 had
  // been read, with the squares of the other rank, which has loaded all of a chunk when it sends them.
  constexpr int kBehind = kRanks == 1 ? 2 : 6;  // chunks until every rank has read a block
  const int lane = threadIdx.x % 32;
  int n = 0;
  each_line<kRanks>(a, slab, split, [&](const Line& line) {
    const int number = line.row * a.heads + line.head;
    const uint32_t* flags = slab.ready + slab.index(number, line.first);
    int known = slab.beside() ? 0 : line.chunks;  // chunks that are there
    for (int chunk = 0; chunk < line.chunks; ++chunk, ++n) {
      while (known <= chunk) {
        const bool there = known + lane < line.chunks && load_acquire(flags + known + lane) != 0;
        known += find_first_bit(~ballot(there));
        __syncwarp();  // what a lane has seen holds for the one that copies
        async_proxy_fence_global();
      }
      if (lane == 0) {
        const unsigned char* from = slab.block(number, line.first + chunk);
        const uint32_t to = at.block(n), early = at.early_full(n), rest = at.rest_full(n);
        const auto copy = [&](int first, int bytes, uint32_t full) {
          bulk_copy_in(to + first, from + first, bytes, full);
        };
        barrier_wait(at.early_empty(n), at.emptied(n));
        constexpr int kOwn = StateMemory<kRanks>::kOwnBytes;
        barrier_arrive_expect(early, 2 * kPanel + kOwn);
        if constexpr (kRanks == 1) copy(kWeightedKeys, 4 * kPanel, early);
        else copy(kWeightedKeys, 2 * kPanel, early), copy(kWeightedValues + at.rank() * kOwn, kOwn, early);
        barrier_wait(at.rest_empty(n), at.emptied(n));
        barrier_arrive_expect(rest, kBlockBytes - 4 * kPanel);
        copy(kRestoredKeys, 4 * kPanel, rest);
        copy(kScores, kBlockBytes - kScores, rest);
      }
      __syncwarp();
      if (slab.beside() && chunk >= kBehind && at.rank() == 0) {
        unsigned char* read = slab.block(number, line.first + chunk - kBehind);
        for (int i = lane * kCacheLine; i < kBlockBytes; i += 32 * kCacheLine) discard_line(read + i);
      }
    }
  });
}

// Half of both numbers (exact but for subnormal ones).
__device__ __forceinline__ uint32_t halved(uint32_t pair) {
#ifdef K3_CUDA_EMULATOR
  return bf16_pair(0.5f * both(pair).x, 0.5f * both(pair).y);
#else
  uint32_t half;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(half) : "r"(pair), "r"(0x3f003f00u));
  return half;
#endif
}

// Sixteen lanes (eight with two ranks) own a token, eight channels each, whose norm weights stay in registers. Gates
// come into the place of those that the lane has just read; O and gates of a round are in registers when the round
// before is computed.
// sigmoid(x) = (1 + tanh(x / 2)) / 2, with the errors of silu_of_half().
template <int kRanks>
__device__ __forceinline__ void finish_outputs(const StepArguments& a, const Slab& slab, const Split& split,
                                               const StateMemory<kRanks>& at) {
  using Memory = StateMemory<kRanks>;
  constexpr int kLanes = 32 / Memory::kRoundTokens;  // of a token
  const int warp = (static_cast<int>(threadIdx.x) - Memory::kStateThreads) / 32 - 1, lane = threadIdx.x % 32,
            own_channel = lane % kLanes * 8, channel = at.rank() * Memory::kValues + own_channel,
            own_token = lane / kLanes;  // of the round's
  const uint32_t own_gates = at.gates(warp) + lane * 16,
                 own_output = own_channel / 64 * kPanel + panel_offset(own_token, own_channel % 64 * 2);
  const float4 low = load4(a.norm_weight + channel), high = load4(a.norm_weight + channel + 4);
  int unit = warp, before = 0;  // units are counted like chunks; before: of the lines before
  each_line<kRanks>(a, slab, split, [&](const Line& line) {
    const int end = before + kUnits * line.chunks, skip = (unit - before) * kUnit;
    int left = static_cast<int>(min(line.tokens, static_cast<std::int64_t>(line.chunks) * kChunk)) - skip - own_token;
    const auto place = [&](const auto& rows) {
      return (line.first_token + skip + own_token) * rows.token_stride + line.head * rows.head_stride + channel;
    };
    const auto* gate = static_cast<const __nv_bfloat16*>(a.gate.data) + place(a.gate);
    auto* out = static_cast<__nv_bfloat16*>(a.y.data) + place(a.y);
    const auto tokens_on = [](int round) {  // from this round of the warp to its next one
      return Memory::kRoundTokens + (round == Memory::kRounds - 1 ? (kOutputWarps - 1) * kUnit : 0);
    };
    const auto fetch_gates = [&](int round, int left) {  // every lane its own
      if (Memory::kRoundTokens * round < left) copy_async_16(own_gates + round % kGateRounds * kRoundBytes, gate);
      copy_async_commit();
      gate += tokens_on(round) * a.gate.token_stride;
    };
    if (unit < end)
#pragma unroll
      for (int round = 0; round < kGateRounds; ++round) fetch_gates(round, left);
    for (; unit < end; unit += kOutputWarps) {
      const int n = unit / kUnits, first_token = unit % kUnits * kUnit;
      const uint32_t row = at.output(n) + first_token * 128 + own_output;
      const int next_left = unit + kOutputWarps < end ? left - kOutputWarps * kUnit : 0;
      barrier_wait(at.output_full(n), at.output_filled(n));
      float scale = 0.f;  // of token lane % 16 of the unit: 1 / (2 sqrt(mean o^2 + eps))
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scale += load_shared_float(at.squares(n) + (lane / 16 * 4 + i) * Memory::kSquarePitch +
                                   (first_token + lane % 16) * 4);
      scale += shuffle_xor(scale, 16);
      scale = 0.5f * inverse_sqrt(scale * (1.f / kDim) + a.norm_eps);
      const auto load_gates = [&](int round) {
        copy_async_wait<kGateRounds - 2>();
        return load_shared_uint4(own_gates + round % kGateRounds * kRoundBytes);
      };
      const auto load_output = [&](int round) {
        const int token = round * Memory::kRoundTokens;
        return load_shared_uint4((row ^ token % 8 * 16) + token * 128);
      };
      uint4 next_gates = load_gates(0), next_o = load_output(0);
#pragma unroll
      for (int round = 0; round < Memory::kRounds; ++round) {
        const uint4 logits = next_gates, o = next_o;
        if (round + 1 < Memory::kRounds) next_gates = load_gates(round + 1), next_o = load_output(round + 1);
        const float token_scale = shuffle(scale, Memory::kRoundTokens * round + own_token);
        const auto gated = [&](uint32_t o, uint32_t logits, float w0, float w1) {
          const float2 x = both(o), h = both(halved(logits));
          return bf16_pair(x.x * w0 * fmaf(fast_tanh(h.x), token_scale, token_scale),
                           x.y * w1 * fmaf(fast_tanh(h.y), token_scale, token_scale));
        };
        const uint4 y = make_uint4(gated(o.x, logits.x, low.x, low.y), gated(o.y, logits.y, low.z, low.w),
                                   gated(o.z, logits.z, high.x, high.y), gated(o.w, logits.w, high.z, high.w));
        if (Memory::kRoundTokens * round < left) store_streaming(reinterpret_cast<uint4*>(out), y);
        out += tokens_on(round) * a.y.token_stride;
        if (round + kGateRounds < Memory::kRounds) fetch_gates(round + kGateRounds, left);
        else fetch_gates(round + kGateRounds - Memory::kRounds, next_left);
      }
      barrier_arrive(at.output_read(n));
      left -= kOutputWarps * kUnit;
    }
    before = end;
  });
}

}  // namespace k3::cuda::kda::prefill_detail
