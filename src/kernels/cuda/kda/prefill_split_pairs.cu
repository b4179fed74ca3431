// The transfer pairs of prefill_split.h (sm_90a): one block per row, head, segment and matrix (S~ or M), two warpgroups
// with 64 of its columns each, the scan of prefill_scan.cuh without outputs:
//   R^T = U^T - S^T W^T;   S^T = e^(G_C) S^T + R^T Kb       S~: from zero (segment 0: from the row's state)
//   M: S = identity, U = 0; the "values" are the input keys
// A warp feeds the operands, four stages deep. Products of a chunk: 1024 clocks of the tensor core.
// Precision: as prefill_state.cu, fp32 sums, bf16 operands. More (both bf16 halves of M and its R) changed no result:
// the rounding of S~ and of W, U and Kb is as large.
#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/prefill_scan.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps + 32, kStages = 4;
constexpr int kLook = 4;  // whether M has vanished is looked at every kLook chunks
// Limit of every entry: the norm of a 128 x 128 matrix is then below 2^-24.
[[maybe_unused]] constexpr float kVanished = 0x1p-31f;
// A stage: Kb, W, U, the decays.
[[maybe_unused]] constexpr int kKeys = 0, kWeights = 2 * kPanel, kValues = 4 * kPanel, kDecays = 6 * kPanel;

struct PairMemory {
  using PairRing = Ring<kStages, 6 * kPanel + 1024>;
  static constexpr int kNormBarrier = PairRing::kBytes + PairRing::kBarrierBytes, kNorms = kNormBarrier + 16,
                       kStop = kNorms + 2 * 4 * kWarps, kBytes = kStop + 16 + 1024;
  uint32_t base;         // in shared space
  unsigned char* bytes;  // the same address as a pointer
  __device__ __forceinline__ PairRing ring() const { return {base, base + PairRing::kBytes}; }
  __device__ __forceinline__ uint32_t norm_barrier() const { return base + kNormBarrier; }
  __device__ __forceinline__ float* norms(int look) const {
    return reinterpret_cast<float*>(bytes + kNorms) + look % 2 * kWarps;
  }
  __device__ __forceinline__ volatile int* stop() const { return reinterpret_cast<volatile int*>(bytes + kStop); }
  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < kStages; ++stage)
      barrier_init(ring().full(stage), 1), barrier_init(ring().empty(stage), 32 * kWarps);
    barrier_init(norm_barrier(), kWarps);
    barrier_init_fence();
    *stop() = 0;
  }
};

// Whether every entry of M is below the limit; all warps come to the same answer.
[[maybe_unused]] __device__ __forceinline__ bool all_below(const float (&S)[64], const PairMemory& at, int look) {
  float most = 0.f;
#pragma unroll
  for (int i = 0; i < 64; ++i) most = fmaxf(most, fabsf(S[i]));
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) most = fmaxf(most, shuffle_xor(most, step));
  float* norms = at.norms(look);
  if (threadIdx.x % 32 == 0) {
    norms[threadIdx.x / 32] = most;
    barrier_arrive(at.norm_barrier());
  }
  barrier_wait(at.norm_barrier(), look & 1);
#pragma unroll
  for (int i = 0; i < kWarps; ++i) most = fmaxf(most, norms[i]);
  return most < kVanished;
}

// Walks the segment; true when M has vanished on the way.
template <bool kTransfer>
__device__ __forceinline__ bool walk(float (&S)[64], const PairMemory& at, int chunks) {
  const auto ring = at.ring();
  const uint32_t values = kValues + threadIdx.x / 128 * kPanel;
  bool vanished = false;
  float r[32];
  uint32_t left[32], r_bits[16];
  pack(left, S);
  barrier_wait(ring.full(0), 0);
  if constexpr (!kTransfer) load_values(r, ring.block(0) + values);
  for (int chunk = 0; chunk < chunks && !vanished; ++chunk) {
    const int stage = chunk % kStages, next = (chunk + 1) % kStages;
    const uint32_t block = ring.block(stage);
    wgmma_fence();
    project<kTransfer ? 0 : 1, -1>(r, left, block + kWeights);
    wgmma_commit();
    wgmma_wait<1>();  // costs nothing; without it ptxas waits for the product before S is touched
    if (kTransfer && chunk % kLook == kLook - 1) vanished = all_below(S, at, chunk / kLook);
    decay_state(S, block + kDecays);
    wgmma_wait<0>();
    settle(r);
    pack(r_bits, r);
    wgmma_fence();
    restore(S, r_bits, block + kKeys);
    wgmma_commit();
    if (chunk + 1 < chunks) barrier_wait(ring.full(next), (chunk + 1) / kStages & 1);
    if constexpr (!kTransfer) load_values(r, ring.block(next) + values);  // behind the last chunk: stale, never used
    wgmma_wait<0>();
    settle(S);
    pack(left, S);
    if (vanished && threadIdx.x == 0) *at.stop() = 1;
    barrier_arrive(ring.empty(stage));
  }
  return vanished;
}

// blocks: of the segment's first chunk.
[[maybe_unused]] __device__ __forceinline__ void feed(const PairMemory& at, const unsigned char* blocks, int heads,
                                                      int chunks, bool transfer) {
  static_assert(kWeightedKeys == kRestoredKeys + 2 * kPanel, "Kb and W in one copy");
  const auto ring = at.ring();
  int issued = 0;
  for (; issued < chunks; ++issued) {
    const int stage = issued % kStages;
    barrier_wait(ring.empty(stage), (issued / kStages & 1) ^ 1);
    if (*at.stop()) break;
    const unsigned char* block = blocks + static_cast<std::int64_t>(issued) * heads * kBlockStride;
    const uint32_t to = ring.block(stage), full = ring.full(stage);
    barrier_arrive_expect(full, (transfer ? 4 : 6) * kPanel + kDim * 4);
    bulk_copy_in(to + kKeys, block + kRestoredKeys, 4 * kPanel, full);
    if (!transfer) bulk_copy_in(to + kValues, block + kWeightedValues, 2 * kPanel, full);
    bulk_copy_in(to + kDecays, block + kDecay, kDim * 4, full);
  }
  for (int chunk = max(issued - kStages, 0); chunk < issued; ++chunk)  // no copy may outlive the block
    barrier_wait(ring.full(chunk % kStages), chunk / kStages & 1);
}

// z < segments - 2: M of segment z + 1; behind them S~ of segment 0, 1, ...
__global__ void __launch_bounds__(kThreads, 1)
    pairs_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab,
                 const __grid_constant__ Split split) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  await_previous_kernel();
  release_next_kernel();
  const int head = blockIdx.x, row = blockIdx.y, which = blockIdx.z, half = threadIdx.x / 128;
  const bool transfer = which < split.segments - 2;
  const int segment = transfer ? which + 1 : which - (split.segments - 2), chunks = split.segment_chunks,
            first = segment * chunks;
  if (first + chunks >= share_of(a, slab, row).chunks) return;  // the last segment of a row, or none
  const uint32_t base = panel_base();
  const PairMemory at{
      base, shared_memory<unsigned char>() + (base - shared_address(shared_memory<unsigned char>()))};
  if (threadIdx.x == 0) at.init();
  __syncthreads();
  if (threadIdx.x >= 32 * kWarps) {
    if (threadIdx.x == 32 * kWarps) feed(at, block_of(slab, row, first, a.heads, head), a.heads, chunks, transfer);
    return;
  }
  constexpr std::int64_t kState = kDim * kDim;
  const std::int64_t pair = (static_cast<std::int64_t>(row) * split.segments + segment) * a.heads + head;
  float S[64];
  if (transfer) {
    each_state_element(64 * half, [&](int i, int key, int value) { S[i] = key == value ? 1.f : 0.f; });
    const bool vanished = walk<true>(S, at, chunks);
    if (threadIdx.x % 128 == 0) split.vanished[2 * pair + half] = vanished;
    float* to = split.transfers + pair * kDim * kTransferPitch;
    if (!vanished)
      each_state_element(64 * half, [&](int i, int key, int value) { to[value * kTransferPitch + key] = S[i]; });
  } else {
    float* entry = split.entries + pair * kState;  // S_in of this segment; S~ goes to the next one's
    float* next = entry + a.heads * kState;
    const float* state = a.state + (static_cast<std::int64_t>(a.slots[row]) * a.heads + head) * kState;
    if (segment == 0) {  // the loads first: the compiler moves none across a store
      each_state_element(64 * half, [&](int i, int key, int value) { S[i] = state[key * kDim + value]; });
      each_state_element(64 * half, [&](int i, int key, int value) { entry[key * kDim + value] = S[i]; });
    } else {
      each_state_element(64 * half, [&](int i, int, int) { S[i] = 0.f; });
    }
    walk<false>(S, at, chunks);
    each_state_element(64 * half, [&](int i, int key, int value) { next[key * kDim + value] = S[i]; });
  }
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

}  // namespace

cudaError_t launch_pairs(const StepArguments& a, const Slab& slab, const Split& split, cudaStream_t stream) {
  return launch_chained(pairs_kernel, dim3(a.heads, a.rows, 2 * split.segments - 3), kThreads, PairMemory::kBytes,
                        stream, a, slab, split);
}

}  // namespace k3::cuda::kda::prefill_detail
