// How a block of prefill_split_pairs.cu walks a segment (sm_90a): its shared memory, the scan of S~ and M over chunks
// that a thread feeds, and whether M has vanished. S and M lie in the sums of the same two warpgroups, 128 registers a
// thread; with less than 240 ptxas serialises the products.
#pragma once

#include "kernels/cuda/kda/prefill_scan.cuh"

namespace k3::cuda::kda::prefill_detail::pairs {

inline constexpr int kWarps = 8, kThreads = 32 * kWarps + 128, kStages = 4;
inline constexpr int kWalkRegisters = 240, kFeedRegisters = 24;
// Limit of every entry: the norm of a 128 x 128 matrix is then below 2^-24.
inline constexpr float kVanished = 0x1p-31f;
// A stage: Kb, W, U, the decays.
inline constexpr int kKeys = 0, kWeights = 2 * kPanel, kValues = 4 * kPanel, kDecays = 6 * kPanel;

struct PairMemory {
  using PairRing = Ring<kStages, 6 * kPanel + 1024>;
  static constexpr int kNormBarrier = PairRing::kBytes + PairRing::kBarrierBytes, kNorms = kNormBarrier + 16,
                       kWindows = kNorms + 2 * 4 * kWarps, kBytes = kWindows + 4 * 4 + 1024;
  uint32_t base;         // in shared space
  unsigned char* bytes;  // the same address as a pointer
  __device__ __forceinline__ PairRing ring() const { return {base, base + PairRing::kBytes}; }
  __device__ __forceinline__ uint32_t norm_barrier() const { return base + kNormBarrier; }
  __device__ __forceinline__ float* norms(int look) const {
    return reinterpret_cast<float*>(bytes + kNorms) + look * kWarps;
  }
  __device__ __forceinline__ int* windows() const { return reinterpret_cast<int*>(bytes + kWindows); }
  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < kStages; ++stage)
      barrier_init(ring().full(stage), 1), barrier_init(ring().empty(stage), 32 * kWarps);
    barrier_init(norm_barrier(), kWarps);
    barrier_init_fence();
  }
};

// The chunks of the segment and where the block of its first one lies.
struct Span {
  const unsigned char* blocks;
  int chunks;
  __device__ __forceinline__ const unsigned char* block(int chunk) const {
    return blocks + static_cast<std::int64_t>(chunk) * kBlockStride;
  }
};

// Whether M has vanished; `look` counts the calls. The second form for those who hold M, the first waits for them.
__device__ __forceinline__ bool all_below(const PairMemory& at, int look) {
  barrier_wait(at.norm_barrier(), look);
  float most = 0.f;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) most = fmaxf(most, at.norms(look)[i]);
  return most < kVanished;
}
__device__ __forceinline__ bool all_below(const float (&S)[64], const PairMemory& at, int look) {
  float most = 0.f;
#pragma unroll
  for (int i = 0; i < 64; ++i) most = fmaxf(most, fabsf(S[i]));
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) most = fmaxf(most, shuffle_xor(most, step));
  if (threadIdx.x % 32 == 0) {
    at.norms(look)[threadIdx.x / 32] = most;
    barrier_arrive(at.norm_barrier());
  }
  return all_below(at, look);
}

// The first chunk, from zero or, for M, from the identity: R is U or -W as it lies there.
template <bool kTransfer>
__device__ __forceinline__ void begin(float (&S)[64], uint32_t block) {
  const int half = threadIdx.x / 128;
  uint32_t r_bits[16];
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    uint32_t bits[4];
    load_transposed(bits, transposed_address(block + (kTransfer ? kWeights : kValues) + half * kPanel, tile));
#pragma unroll
    for (int i = 0; i < 4; ++i) r_bits[4 * tile + i] = kTransfer ? bits[i] ^ 0x80008000u : bits[i];
  }
  each_state_element(64 * half, [&](int i, int key, int value) { S[i] = kTransfer && key == value ? 1.f : 0.f; });
  if constexpr (kTransfer) decay_state(S, block + kDecays);
  wgmma_fence();
  restore(S, r_bits, block + kKeys);
  wgmma_commit();
  wgmma_wait<0>();
  settle(S);
}
// `count` chunks, the first of them number n of the ring, for S~ and, where asked, M; `fresh`: from zero and the
// identity. wait: false in a rehearsal, which is about the instructions alone.
__device__ __forceinline__ void walk(float (&S)[64], float (&M)[64], const PairMemory& at, int n, int count, bool fresh,
                                     bool asked, bool wait) {
  const auto ring = at.ring();
  const uint32_t values = kValues + threadIdx.x / 128 * kPanel;
  const auto there = [&](int n) {
    if (wait) barrier_wait(ring.full(n % kStages), n / kStages & 1);
  };
  const auto free = [&](int n) {
    if (wait) barrier_arrive(ring.empty(n % kStages));
  };
  const int end = n + count;
  there(n);
  if (fresh) {
    const uint32_t block = ring.block(n % kStages);
    begin<false>(S, block), begin<true>(M, block);
    free(n);
    if (++n == end) return;
    there(n);
  }
  float r[32];
  load_values(r, ring.block(n % kStages) + values);
  for (; n < end; ++n) {
    const uint32_t block = ring.block(n % kStages);
    uint32_t left[32], r_bits[16], m_bits[16];
    const auto advance = [&]<int kFromValues>(float(&X)[64], uint32_t(&bits)[16]) {  // r: U^T, or nothing
      pack(left, X);
      wgmma_fence();
      project<kFromValues, -1>(r, left, block + kWeights);
      wgmma_commit();
      wgmma_wait<1>();  // costs nothing; without it ptxas waits for the product before X is touched
      decay_state(X, block + kDecays);
      wgmma_wait<0>();
      settle(r);
      pack(bits, r);
      wgmma_fence();
      restore(X, bits, block + kKeys);
      wgmma_commit();
    };
    advance.template operator()<1>(S, r_bits);
    if (asked) advance.template operator()<0>(M, m_bits);
    if (n + 1 < end) there(n + 1);
    load_values(r, ring.block((n + 1) % kStages) + values);  // behind the last chunk: stale, never used
    wgmma_wait<0>();
    settle(S), settle(M);
    free(n);
  }
}

// Copies the last `chunks` chunks in, the first of them as number n.
__device__ __forceinline__ void feed(const PairMemory& at, const Span& span, int n, int chunks) {
  static_assert(kWeightedValues == kWeightedKeys + 2 * kPanel && kValues == kWeights + 2 * kPanel, "in one copy");
  const auto ring = at.ring();
  for (int chunk = span.chunks - chunks; chunk < span.chunks; ++chunk, ++n) {
    const int stage = n % kStages;
    barrier_wait(ring.empty(stage), (n / kStages & 1) ^ 1);
    const unsigned char* block = span.block(chunk);
    const uint32_t to = ring.block(stage), full = ring.full(stage);
    barrier_arrive_expect(full, 6 * kPanel + kDim * 4);
    bulk_copy_in(to + kDecays, block + kDecay, kDim * 4, full);
    bulk_copy_in(to + kKeys, block + kRestoredKeys, 2 * kPanel, full);
    bulk_copy_in(to + kWeights, block + kWeightedKeys, 4 * kPanel, full);
  }
}

}  // namespace k3::cuda::kda::prefill_detail::pairs
