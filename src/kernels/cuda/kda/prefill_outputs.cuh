// What the state kernel (prefill_state.cu) does beside the state: its lines, its shared memory, the feed of operand
// blocks, and the output y = o / sqrt(mean o^2 + eps) * norm_weight * sigmoid(gate).
//
// Shared memory: two stages of operands, in two parts that come and go by themselves (W and U are used a product
// earlier than the rest and are free earlier: each part is on its way for about 1.5 chunks), three places for O of a
// chunk (bf16, [token][value] in panels), and a place of gates for every output warp.
// Bytes through shared memory a chunk: operands in 72 KB, read by the products of two warpgroups 112 KB, U 16 KB, O in
// and out 32 KB, gates in and out 32 KB: 2100 clocks of 128 bytes, beside 1792 of the tensor core; the norm weights,
// read anew for every four tokens, take 256 of the L1.
#pragma once

#include "kernels/cuda/kda/prefill_scan.cuh"

namespace k3::cuda::kda::prefill_detail {

// Warps: two warpgroups of the state, one warp that feeds, seven that make the output. A unit of output is 16 tokens of
// a chunk, for one warp.
inline constexpr int kStateThreads = 256, kAllThreads = 512, kOutputWarps = (kAllThreads - kStateThreads) / 32 - 1;
inline constexpr int kUnit = 16, kUnits = kChunk / kUnit;

// The chunks of a row and head that a block walks; several of these a block in the overlapped form.
struct Line {
  int row, head, segment;
  int first, chunks;                 // first: chunk of the slab
  std::int64_t first_token, tokens;  // of `first` in the packed tensors; tokens from there to the row's end
  bool split, last, ends;            // in segments; with the row's last chunk in the slab; and of all
};
template <class Visit>
__device__ __forceinline__ void each_line(const StepArguments& a, const Slab& slab, const Split& split, Visit visit) {
  const int lines = a.heads * a.rows * split.segments;
  for (int index = blockIdx.x; index < lines; index += static_cast<int>(gridDim.x)) {
    const int head = index % a.heads, row = index / a.heads % a.rows, segment = index / a.heads / a.rows,
              first = segment * split.segment_chunks;
    const Share share = share_of(a, slab, row);
    if (first >= share.chunks) continue;
    const int chunks = min(split.segment_chunks, share.chunks - first);
    const std::int64_t skipped = static_cast<std::int64_t>(first) * kChunk;
    const bool last = first + chunks == share.chunks;
    visit(Line{row, head, segment, first, chunks, share.first_token + skipped, share.tokens - skipped,
               share.chunks > split.segment_chunks, last, last && share.ends});
  }
}

struct StateMemory {
  static constexpr int kStages = 2, kOutputs = 3, kGateBytes = kUnit * kDim * 2;
  static constexpr int kOutputAt = kStages * kBlockStride, kGatesAt = kOutputAt + kOutputs * 2 * kPanel,
                       kBarriers = kGatesAt + kOutputWarps * kGateBytes,
                       kBytes = kBarriers + 8 * (4 * kStages + 2 * kOutputs) + 1024;
  static_assert(kBytes <= 227 * 1024);

  uint32_t base;  // in shared space
  __device__ __forceinline__ uint32_t block(int n) const { return base + n % kStages * kBlockStride; }
  __device__ __forceinline__ uint32_t output(int n) const { return base + kOutputAt + n % kOutputs * 2 * kPanel; }
  __device__ __forceinline__ uint32_t gates(int warp) const { return base + kGatesAt + warp * kGateBytes; }
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

// One lane of a warp. Early: W and U; the rest: Kb, Qd, A, the decays. The other lanes wait here: one
// that went on to await_previous_kernel() would hold the whole warp.
__device__ __forceinline__ void feed_blocks(const StepArguments& a, const Slab& slab, const Split& split,
                                            const StateMemory& at) {
  int n = 0;
  each_line(a, slab, split, [&](const Line& line) {
    for (int chunk = 0; chunk < line.chunks; ++chunk, ++n) {
      if (threadIdx.x % 32 == 0) {
        const unsigned char* from = block_of(slab, line.row, line.first + chunk, a.heads, line.head);
        if (slab.ready) {
          const uint32_t* ready = slab.ready + (from - slab.blocks) / kBlockStride;
          while (load_acquire(ready) == 0) {
          }
          async_proxy_fence_global();
        }
        const uint32_t to = at.block(n), early = at.early_full(n), rest = at.rest_full(n);
        const auto copy = [&](int first, int bytes, uint32_t full) {
          bulk_copy_in(to + first, from + first, bytes, full);
        };
        barrier_wait(at.early_empty(n), at.emptied(n));
        barrier_arrive_expect(early, 4 * kPanel);
        copy(kWeightedKeys, 2 * kPanel, early), copy(kWeightedValues, 2 * kPanel, early);
        barrier_wait(at.rest_empty(n), at.emptied(n));
        barrier_arrive_expect(rest, kBlockBytes - 4 * kPanel);
        copy(kDecayedQueries, 2 * kPanel, rest), copy(kRestoredKeys, 2 * kPanel, rest);
        copy(kScores, kBlockBytes - kScores, rest);
      }
      __syncwarp();
    }
  });
}

// Eight lanes own a token, eight channels in each panel; a round of the warp is four tokens. The gates of a warp's next
// unit come as soon as those of this one have been read.
__device__ __forceinline__ void finish_outputs(const StepArguments& a, const Slab& slab, const Split& split,
                                               const StateMemory& at) {
  constexpr int kRow = kDim * 2, kRounds = kUnit / 4;
  const int warp = (static_cast<int>(threadIdx.x) - kStateThreads) / 32 - 1, lane = threadIdx.x % 32;
  const uint32_t own_gates = at.gates(warp);
  int unit = warp, before = 0;  // units are counted like chunks; before: of the lines before
  each_line(a, slab, split, [&](const Line& line) {
    const int end = before + kUnits * line.chunks, skip = (unit - before) * kUnit;
    int left = static_cast<int>(min(line.tokens, static_cast<std::int64_t>(line.chunks) * kChunk)) - skip;
    const auto place = [&](const auto& rows, int token) {
      return (line.first_token + skip + token) * rows.token_stride + line.head * rows.head_stride;
    };
    const auto* gate = static_cast<const __nv_bfloat16*>(a.gate.data) + place(a.gate, lane / 8) + lane % 8 * 8;
    auto* out = static_cast<__nv_bfloat16*>(a.y.data) + place(a.y, lane / 8) + lane % 8 * 8;
    const auto fetch_gates = [&](int left) {  // every lane its own
#pragma unroll
      for (int round = 0; round < kRounds; ++round) {
        if (4 * round + lane / 8 < left)
#pragma unroll
          for (int panel = 0; panel < 2; ++panel)
            copy_async_16(own_gates + (4 * round + lane / 8) * kRow + lane % 8 * 16 + 128 * panel, gate + 64 * panel);
        gate += 4 * a.gate.token_stride;
      }
      copy_async_commit();
      gate += (kOutputWarps - 1) * kUnit * a.gate.token_stride;
    };
    if (unit < end) fetch_gates(left);
    for (; unit < end; unit += kOutputWarps) {
      const int n = unit / kUnits;
      const uint32_t row = at.output(n) + unit % kUnits * kUnit * 128 + panel_offset(lane / 8, lane % 8 * 16);
      barrier_wait(at.output_full(n), at.output_filled(n));
      copy_async_wait<0>();
#pragma unroll
      for (int round = 0; round < kRounds; ++round) {
        uint4 o[2];
        float size = 0.f;  // sqrt(mean o^2 + eps)
        const auto square = [](uint32_t pair) {
          const float2 x = both(pair);
          return x.x * x.x + x.y * x.y;
        };
#pragma unroll
        for (int panel = 0; panel < 2; ++panel)  // four rows on: the other half of the swizzle
          o[panel] = load_shared_uint4(((row + round * 512) ^ round % 2 * 64) + panel * kPanel);
#pragma unroll
        for (int panel = 0; panel < 2; ++panel)
          size += square(o[panel].x) + square(o[panel].y) + square(o[panel].z) + square(o[panel].w);
#pragma unroll
        for (int step = 4; step >= 1; step /= 2) size += shuffle_xor(size, step);
        const float mean = size * (1.f / kDim) + a.norm_eps;
        size = mean * inverse_sqrt(mean);
        const float* weights = a.norm_weight + opaque(lane) % 8 * 8;  // from the L1: registers are short
#pragma unroll
        for (int panel = 0; panel < 2; ++panel) {
          const float4 low = load4(weights + 64 * panel), high = load4(weights + 64 * panel + 4);
          const int token = 4 * round;  // of the unit, the first of the round
          const uint4 gate = load_shared_uint4(own_gates + (token + lane / 8) * kRow + 128 * panel + lane % 8 * 16);
          const auto gated = [&](uint32_t pair, uint32_t logits, float w0, float w1) {
            const float2 x = both(pair), z = both(logits);
            const auto scale = [&](float logit) {  // sigmoid(logit) / size
              return approximate_reciprocal(fast_exp(-logit) * size + size);
            };
            return bf16_pair(x.x * w0 * scale(z.x), x.y * w1 * scale(z.y));
          };
          const uint4 y =
              make_uint4(gated(o[panel].x, gate.x, low.x, low.y), gated(o[panel].y, gate.y, low.z, low.w),
                         gated(o[panel].z, gate.z, high.x, high.y), gated(o[panel].w, gate.w, high.z, high.w));
          if (token + lane / 8 < left)
            *reinterpret_cast<uint4*>(out + token * a.y.token_stride + 64 * panel) = y;
        }
      }
      barrier_arrive(at.output_read(n));
      left -= kOutputWarps * kUnit;
      out += kOutputWarps * kUnit * a.y.token_stride;
      if (unit + kOutputWarps < end) fetch_gates(left);
    }
    before = end;
  });
}

}  // namespace k3::cuda::kda::prefill_detail
