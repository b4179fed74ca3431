// The recurrence of the state's gradient (chunk_hopper.cuh), chunks in reverse. Blocks as in chunk_hopper_scan.cu:
// warpgroup i < dim / 64 holds dS of 64 value columns, transposed.
//   dR^T = dS^T Kb^T + dO^T A             m64 n64    left = fp16(dS^T), then fp16(dO^T)
//   dS^T = e^(G_C) dS^T + dO^T Qd - dR^T W   m64 n dim  left = fp16(dO^T), then fp16(dR^T)
//   X^T  = dR^T T                         m64 n64    left = fp16(dR^T)
// dS before the step (the gradient of the state that leaves the chunk) and X go to memory for the gradients.
// The last warpgroup: warp 0 moves records in (two buffers) and dS, X out; warps 1-3 bring dO in, times scale and the
// range factor, and at dim 128 set dbeta to zero for the two blocks that will add to it.
#include "kernels/cuda/kda/chunk_hopper.cuh"
#include "kernels/cuda/kda/chunk_tiles.cuh"

namespace k3::cuda::kda::hopper {
namespace {

constexpr int kStages = 2, kInputWarps = 3;  // of records

template <int kDim>
struct Layout {
  using Block = Record<kDim>;
  static constexpr int kGroups = kDim / 64, kThreads = 128 * kGroups + 128;
  static constexpr int kFirst = Block::kWeightedKeys, kMoved = Block::kBytes - kFirst;  // of a record; U stays away
  static constexpr int kInverse = (kMoved + 1023) / 1024 * 1024, kStride = kInverse + kPanelBytes;  // of a stage
  static constexpr int kOutputStages = kDim == 64 ? 1 : 2;  // of dO
  static constexpr int kOutput = kStages * kStride, kWeighted = kOutput + kOutputStages * Block::kOperand,
                       kState = kWeighted + Block::kOperand, kBarriers = kState + Block::kState,
                       kBytes = kBarriers + 128 + 1024;
};
struct Addresses {  // in shared space
  uint32_t base, barriers;
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return barriers + 16 + 8 * stage; }
  __device__ __forceinline__ uint32_t output_full(int stage) const { return barriers + 32 + 8 * stage; }
  __device__ __forceinline__ uint32_t output_empty(int stage) const { return barriers + 48 + 8 * stage; }
  __device__ __forceinline__ uint32_t state_full() const { return barriers + 64; }
  __device__ __forceinline__ uint32_t state_empty() const { return barriers + 72; }
  __device__ __forceinline__ uint32_t weighted_full() const { return barriers + 80; }
  __device__ __forceinline__ uint32_t weighted_empty() const { return barriers + 88; }
};

template <int kDim>
__device__ __forceinline__ void state_warpgroup(const BackwardArguments& a, const Addresses& at, float factor,
                                                std::int64_t state_at, int group, int chunks) {
  using Block = Record<kDim>;
  using Place = Layout<kDim>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int value = 64 * group + 16 * warp + lane / 4, key0 = 2 * (lane % 4);
  float S[kDim / 2];
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      S[4 * j + e] =
          a.d_final_state ? factor * a.d_final_state[state_at + (8 * j + key0 + e % 2) * kDim + value + 8 * (e / 2)]
                          : 0.f;

  for (int step = 0; step < chunks; ++step) {
    const int stage = step % kStages;
    const uint32_t block = at.base + stage * Place::kStride - Place::kFirst;
    uint32_t left[kDim / 4], output[16], r_bits[16];
    float r[32];
#pragma unroll
    for (int i = 0; i < kDim / 4; ++i) left[i] = half_pair(S[2 * i], S[2 * i + 1]);
    const int output_stage = step % Place::kOutputStages;
    barrier_wait(at.output_full(output_stage), step / Place::kOutputStages & 1);
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      load_transposed(*reinterpret_cast<uint32_t (*)[4]>(&output[4 * tile]),
                      far(at.base + Place::kOutput + output_stage * Block::kOperand + group * kPanelBytes, 16 * tile,
                          16 * warp));
    barrier_arrive(at.output_empty(output_stage));
    barrier_wait(at.full(stage), step / kStages & 1);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      const uint64_t keys = panel_descriptor(block + Block::kRestoredKeys + k / 4 * kPanelBytes + k % 4 * 32);
      if (k == 0) wgmma_half<0, 1, 0>(r, left, keys);
      else wgmma_half<1, 1, 0>(r, left + 4 * k, keys);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma_half<1, 1, 1>(r, output + 4 * k, panel_descriptor(block + Block::kScores + k * 2048, kPanelBytes));
    wgmma_commit();
    wgmma_wait<1>();  // costs nothing; without it ptxas waits for everything before the sums below are touched
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const float2 decay = load_shared_float2(block + Block::kDecay + (8 * j + key0) * 4);
      S[4 * j] *= decay.x, S[4 * j + 1] *= decay.y, S[4 * j + 2] *= decay.x, S[4 * j + 3] *= decay.y;
    }
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma_half<1, 1, 1>(S, output + 4 * k,
                          panel_descriptor(block + Block::kDecayedQueries + k * 2048, kPanelBytes));
    wgmma_commit();
    barrier_wait(at.state_empty(), (step & 1) ^ 1);
#pragma unroll
    for (int half = 0; half < kDim / 64; ++half)
      put_transposed(at.base + Place::kState + (half * (kDim / 64) + group) * kPanelBytes, 16 * warp, left + 16 * half);
    async_proxy_fence();
    warp_arrive(at.state_full());
    wgmma_wait<1>();
    settle(r);
#pragma unroll
    for (int i = 0; i < 16; ++i) r_bits[i] = half_pair(r[2 * i], r[2 * i + 1]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma_half<1, -1, 1>(S, r_bits + 4 * k, panel_descriptor(block + Block::kWeightedKeys + k * 2048, kPanelBytes));
    wgmma_commit();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint64_t t = panel_descriptor(at.base + stage * Place::kStride + Place::kInverse + k * 2048, kPanelBytes);
      if (k == 0) wgmma_half<0, 1, 1>(r, r_bits, t);
      else wgmma_half<1, 1, 1>(r, r_bits + 4 * k, t);
    }
    wgmma_commit();
    barrier_wait(at.weighted_empty(), (step & 1) ^ 1);
    wgmma_wait<0>();
    settle(S);
    settle(r);
#pragma unroll
    for (int i = 0; i < 16; ++i) r_bits[i] = half_pair(r[2 * i], r[2 * i + 1]);
    put_transposed(at.base + Place::kWeighted + group * kPanelBytes, 16 * warp, r_bits);
    async_proxy_fence();
    warp_arrive(at.weighted_full());
    warp_arrive(at.empty(stage));
  }
  if (a.d_initial_state)
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        a.d_initial_state[state_at + (8 * j + key0 + e % 2) * kDim + value + 8 * (e / 2)] = S[4 * j + e] / factor;
}

// One thread: records in; dS and X out.
template <int kDim>
__device__ __forceinline__ void move(const Workspace& w, const Gradients& gradients, const Addresses& at,
                                     std::int64_t first_tile, int heads, int chunks) {
  using Block = Record<kDim>;
  using Place = Layout<kDim>;
  const auto tile_of = [&](int step) { return first_tile + static_cast<std::int64_t>(chunks - 1 - step) * heads; };
  const auto fetch = [&](int step) {
    const int stage = step % kStages;
    barrier_wait(at.empty(stage), (step / kStages & 1) ^ 1);
    barrier_arrive_expect(at.full(stage), Place::kMoved + kPanelBytes);
    bulk_copy_in(at.base + stage * Place::kStride, w.records + tile_of(step) * Block::kStride + Place::kFirst,
                 Place::kMoved, at.full(stage));
    bulk_copy_in(at.base + stage * Place::kStride + Place::kInverse, w.inverse + tile_of(step) * kPanelBytes,
                 kPanelBytes, at.full(stage));
  };
  for (int step = 0; step < min(kStages, chunks); ++step) fetch(step);
  for (int step = 0; step < chunks; ++step) {
    const std::int64_t tile = tile_of(step);
    barrier_wait(at.state_full(), step & 1);
    bulk_copy_out(gradients.d_states + tile * Block::kState, at.base + Place::kState, Block::kState);
    bulk_commit();
    barrier_wait(at.weighted_full(), step & 1);
    bulk_copy_out(gradients.d_weighted + tile * Block::kOperand, at.base + Place::kWeighted, Block::kOperand);
    bulk_commit();
    bulk_wait_read<1>();
    barrier_arrive(at.state_empty());
    if (step + kStages < chunks) fetch(step + kStages);
    bulk_wait_read<0>();
    barrier_arrive(at.weighted_empty());
  }
  bulk_wait_written();
}

template <class E>
using Four = std::conditional_t<std::is_same_v<E, float>, float4, uint2>;  // four neighbours as they lie in memory
__device__ __forceinline__ float4 widened(float4 x) { return x; }
__device__ __forceinline__ float4 widened(uint2 x) {
  return make_float4(both(x.x).x, both(x.x).y, both(x.y).x, both(x.y).y);
}

// dO of three warps' rows to panels, fp16; zeros beyond the sequence.
template <int kDim>
__device__ __forceinline__ void input_warp(const BackwardArguments& a, const Addresses& at, float factor, int which,
                                           std::int64_t first_token, std::int64_t tokens, int head, int chunks) {
  constexpr int kLanes = kDim / 4, kRows = 32 / kLanes,  // of a row; rows a warp reads at once
      kTurns = (kTokens + kInputWarps * kRows - 1) / (kInputWarps * kRows);
  const int lane = threadIdx.x % 32, channel = lane % kLanes * 4;
  const float weight = a.inputs.scale * factor;
  for (int step = 0; step < chunks; ++step) {
    const int stage = step % Layout<kDim>::kOutputStages;
    const std::int64_t token0 = static_cast<std::int64_t>(chunks - 1 - step) * kTokens;
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kTokens), tokens - token0));
    uint2 pairs[kTurns];
    // kAtOnce loads before the first conversion: as many as fit into the registers.
    const auto bring = [&]<int kAtOnce, class E>(const E*) {
      Column<const E> from(a.d_o, first_token + token0 + which * kRows + lane / kLanes, head, channel,
                           kInputWarps * kRows);
#pragma unroll
      for (int i0 = 0; i0 < kTurns; i0 += kAtOnce) {
        Four<E> x[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce && i0 + i < kTurns; ++i) {
          const E* at_row = from.next();
          x[i] = Four<E>{};
          if (((i0 + i) * kInputWarps + which) * kRows + lane / kLanes < count)
            x[i] = *reinterpret_cast<const Four<E>*>(at_row);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce && i0 + i < kTurns; ++i) {
          const float4 values = widened(x[i]);
          pairs[i0 + i] = make_uint2(half_pair(weight * values.x, weight * values.y),
                                     half_pair(weight * values.z, weight * values.w));
        }
      }
    };
    constexpr int kWideAtOnce = kDim == 64 ? kTurns : (kTurns + 2) / 3;
    if (a.output_type == Type::fp32) bring.template operator()<kWideAtOnce>(static_cast<const float*>(nullptr));
    else bring.template operator()<kTurns>(static_cast<const __nv_bfloat16*>(nullptr));
    if constexpr (kDim > 64)
      if (const int row = lane * kInputWarps + which; row < count)
        *row_pointer<float>(a.dbeta, first_token + token0 + row, head) = 0.f;
    barrier_wait(at.output_empty(stage), (step / Layout<kDim>::kOutputStages & 1) ^ 1);
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int row = (i * kInputWarps + which) * kRows + lane / kLanes;
      if (row < kTokens)
        store_shared_uint2(at.base + Layout<kDim>::kOutput + stage * Record<kDim>::kOperand + panel_place(row, channel),
                           pairs[i]);
    }
    barrier_arrive(at.output_full(stage));
  }
}

template <int kDim>
__global__ void __launch_bounds__(Layout<kDim>::kThreads, kDim == 64 ? 2 : 1)
    scan_backward_kernel(const __grid_constant__ BackwardArguments a, const __grid_constant__ Workspace w,
                         const __grid_constant__ Gradients gradients) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Place = Layout<kDim>;
  constexpr int kGroups = Place::kGroups;
  const uint32_t base = (shared_address(shared_memory<unsigned char>()) + 1023) / 1024 * 1024;
  const Addresses at{base, base + Place::kBarriers};
  const ForwardInputs& in = a.inputs;
  const int heads = in.shape.heads, head = blockIdx.x % heads, sequence = blockIdx.x / heads;
  const int first_chunk = w.chunk_starts[sequence], chunks = w.chunk_starts[sequence + 1] - first_chunk;
  const std::int64_t first_token = in.starts[sequence], tokens = in.starts[sequence + 1] - first_token;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(at.full(stage), 1), barrier_init(at.empty(stage), 4 * kGroups);
    }
    for (int stage = 0; stage < Place::kOutputStages; ++stage) {
      // every thread arrives: what they guard is written and read by ordinary instructions on both sides
      barrier_init(at.output_full(stage), 32 * kInputWarps), barrier_init(at.output_empty(stage), 128 * kGroups);
    }
    barrier_init(at.state_full(), 4 * kGroups), barrier_init(at.state_empty(), 1);
    barrier_init(at.weighted_full(), 4 * kGroups), barrier_init(at.weighted_empty(), 1);
    barrier_init_fence();
  }
  __syncthreads();
  const float factor = gradient_factor(gradients.largest_d[sequence * heads + head]);
  const int group = threadIdx.x / 128;
  if (group == kGroups) {
    registers_down<kDim == 64 ? 88 : 96>();
    const int warp = threadIdx.x / 32 % 4;
    if (warp == 0) {
      if (threadIdx.x % 32 == 0)
        move<kDim>(w, gradients, at, static_cast<std::int64_t>(first_chunk) * heads + head, heads, chunks);
    } else {
      input_warp<kDim>(a, at, factor, warp - 1, first_token, tokens, head, chunks);
    }
  } else {
    registers_up<kDim == 64 ? 168 : 200>();
    state_warpgroup<kDim>(a, at, factor, (static_cast<std::int64_t>(sequence) * heads + head) * kDim * kDim, group,
                          chunks);
  }
#endif  // elsewhere chunk_path() is plain and nobody launches it
}

}  // namespace

cudaError_t launch_scan_backward(const BackwardArguments& a, const Workspace& workspace, const Gradients& gradients,
                                 cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.inputs.shape.sequences) * a.inputs.shape.heads);
  return a.inputs.shape.dim == 64 ? launch(scan_backward_kernel<64>, grid, Layout<64>::kThreads, Layout<64>::kBytes,
                                           stream, a, workspace, gradients)
                                  : launch(scan_backward_kernel<128>, grid, Layout<128>::kThreads,
                                           Layout<128>::kBytes, stream, a, workspace, gradients);
}

}  // namespace k3::cuda::kda::hopper
