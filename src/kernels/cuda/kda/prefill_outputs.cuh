// The half of the state kernel (prefill_state.cu) that does not touch the state: its shared memory, the feed of operand
// blocks, and the output y = o / sqrt(mean o^2 + eps) * norm_weight * sigmoid(gate).
//
// Three blocks of operands lie in a ring, because a block takes longer to come than a chunk to compute. Nothing else
// fits beside them, so a chunk's output side lives in places of its own block: O takes the place of U, the gates take
// that of W, which is dead once R is there. Kb, Qd, A and the decays of the next block come as soon as O is there (the
// products have ended then), W and U as soon as O and the gates have been read.
#pragma once

#include "kernels/cuda/kda/prefill_scan.cuh"

namespace k3::cuda::kda::prefill_detail {

inline constexpr int kStateThreads = 256, kOutputThreads = 256, kOutputWarps = kOutputThreads / 32;

struct StateMemory {
  static constexpr int kStages = 3;
  using BlockRing = Ring<kStages, kBlockStride>;
  static constexpr int kOutputBarriers = BlockRing::kBytes + BlockRing::kBarrierBytes,
                       kBytes = kOutputBarriers + 24 * kStages + 1024;
  static_assert(kBytes <= 227 * 1024);

  uint32_t base;  // in shared space
  __device__ __forceinline__ BlockRing ring() const { return {base, base + BlockRing::kBytes}; }
  __device__ __forceinline__ uint32_t output(int stage) const { return ring().block(stage) + kWeightedValues; }
  __device__ __forceinline__ uint32_t gates(int stage) const { return ring().block(stage) + kWeightedKeys; }
  // W has been used; O is there; O and the gates have been read
  __device__ __forceinline__ uint32_t weights_used(int stage) const { return base + kOutputBarriers + 8 * stage; }
  __device__ __forceinline__ uint32_t output_full(int stage) const { return weights_used(kStages + stage); }
  __device__ __forceinline__ uint32_t output_read(int stage) const { return weights_used(2 * kStages + stage); }
  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(ring().full(stage), 1);
      barrier_init(weights_used(stage), kStateThreads / 32), barrier_init(output_full(stage), kStateThreads / 32);
      barrier_init(output_read(stage), kOutputWarps);
    }
    barrier_init_fence();
  }
};

// The segment of a row that a block works on.
struct SegmentWork {
  const unsigned char* blocks;       // of its first chunk
  int head, chunks;
  std::int64_t first_token, tokens;  // where it starts in the packed tensors; tokens from there to the row's end
};

// Sixteen lanes own a token, four channels in each panel; a warp owns tokens 2 warp, 2 warp + 1 (+ 16, 32, 48). Every
// thread copies its own gates, a chunk ahead; the first one feeds the ring.
__device__ __forceinline__ void finish_outputs(const StepArguments& a, const StateMemory& at, const SegmentWork& work) {
  constexpr int kStages = StateMemory::kStages, kStep = 2 * kOutputWarps, kRounds = kChunk / kStep;
  const int thread = threadIdx.x - kStateThreads, lane = thread % 32, own = thread / 16, channel = lane % 16 * 4;
  const auto feed = [&](int chunk, bool late) {
    const int stage = chunk % kStages;
    const uint32_t to = at.ring().block(stage), full = at.ring().full(stage);
    const unsigned char* from = work.blocks + static_cast<std::int64_t>(chunk) * a.heads * kBlockStride;
    const auto copy = [&](int first, int bytes) { bulk_copy_in(to + first, from + first, bytes, full); };
    if (late) {
      copy(kWeightedKeys, 2 * kPanel), copy(kWeightedValues, 2 * kPanel);
    } else {
      barrier_arrive_expect(full, kBlockBytes);
      copy(kRestoredKeys, 2 * kPanel), copy(kDecayedQueries, 2 * kPanel), copy(kScores, kBlockBytes - kScores);
    }
  };
  if (thread == 0)
    for (int chunk = 0; chunk < min(kStages, work.chunks); ++chunk) feed(chunk, false), feed(chunk, true);
  __syncwarp();

  const auto start_of = [&](const auto& rows) {  // of this thread's first channel
    return (work.first_token + own) * rows.token_stride + work.head * rows.head_stride + channel;
  };
  const auto* gates = static_cast<const __nv_bfloat16*>(a.gate.data) + start_of(a.gate);
  auto* out = static_cast<__nv_bfloat16*>(a.y.data) + start_of(a.y);
  const float4 weights[2] = {load4(a.norm_weight + channel), load4(a.norm_weight + 64 + channel)};
  int left = static_cast<int>(min(work.tokens, static_cast<std::int64_t>(work.chunks) * kChunk)) - own;
  const auto gate_at = [&](int stage, int round, int half) {
    return at.gates(stage) + (2 * round + half) * kOutputThreads * 8 + thread * 8;
  };
  const auto fetch_gates = [&](int chunk, int left_then) {
    const int stage = chunk % kStages;
    barrier_wait(at.weights_used(stage), chunk / kStages & 1);
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      if (round * kStep < left_then)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          copy_async_8(gate_at(stage, round, half), gates + round * kStep * a.gate.token_stride + 64 * half);
    gates += kChunk * a.gate.token_stride;
    copy_async_commit();
  };
  fetch_gates(0, left);
  for (int chunk = 0; chunk < work.chunks; ++chunk) {
    const int stage = chunk % kStages, phase = chunk / kStages & 1;
    const bool feeds = thread == 0 && chunk + kStages < work.chunks;
    barrier_wait(at.output_full(stage), phase);
    if (feeds) feed(chunk + kStages, false);
    __syncwarp();
    copy_async_wait<0>();
    const auto output_of = [&](int round, int half) {  // kStep rows on: the same swizzle
      return load_shared_uint2(at.output(stage) + half * kPanel + panel_offset(own, channel * 2) +
                               round * kStep * 128);
    };
    float size[kRounds];  // sqrt(mean o^2 + eps)
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      size[round] = 0.f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 o = output_of(round, half);
        const float2 x = both(o.x), y = both(o.y);
        size[round] += x.x * x.x + x.y * x.y + y.x * y.x + y.y * y.y;
      }
    }
#pragma unroll
    for (int step = 8; step >= 1; step /= 2)
#pragma unroll
      for (int round = 0; round < kRounds; ++round) size[round] += shuffle_xor(size[round], step);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const float mean = size[round] * (1.f / kDim) + a.norm_eps;
      size[round] = mean * inverse_sqrt(mean);
    }
    if (chunk + 1 < work.chunks) fetch_gates(chunk + 1, left - kChunk);  // R has ended by now
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 o = output_of(round, half), gate = load_shared_uint2(gate_at(stage, round, half));
        const auto gated = [&](uint32_t pair, uint32_t logits, float w0, float w1) {
          const float2 x = both(pair), z = both(logits);
          const auto scale = [&](float logit) {  // sigmoid(logit) / size
            return approximate_reciprocal(fast_exp(-logit) * size[round] + size[round]);
          };
          return bf16_pair(x.x * w0 * scale(z.x), x.y * w1 * scale(z.y));
        };
        const float4 w = weights[half];
        const uint2 y = make_uint2(gated(o.x, gate.x, w.x, w.y), gated(o.y, gate.y, w.z, w.w));
        if (round * kStep < left) *reinterpret_cast<uint2*>(out + round * kStep * a.y.token_stride + 64 * half) = y;
      }
    left -= kChunk;
    out += kChunk * a.y.token_stride;
    async_proxy_fence();  // what comes to these places next, comes by bulk copy
    __syncwarp();
    if (lane == 0) barrier_arrive(at.output_read(stage));
    if (feeds) {
      barrier_wait(at.output_read(stage), phase);
      feed(chunk + kStages, true);
    }
    __syncwarp();
  }
}

}  // namespace k3::cuda::kda::prefill_detail
