// The recurrence over chunks of 64 tokens (chunk_hopper.cuh). One block per sequence and head; warpgroup i < dim / 64
// holds the state of 64 value columns, transposed, in the fp32 sums of wgmma:
//   R^T = U^T - S^T W^T          m64 n64  k dim   left = fp16(S^T) from registers
//   O^T = S^T Qd^T + R^T A^T     m64 n64          the same left; then R^T
//   S^T = e^(G_C) S^T + R^T Kb   m64 n dim k64    left = fp16(R^T)
// R is issued first; in its shadow O of the chunk before and the copy of S leave for shared memory and S is decayed
// (the tensor core reads the fp16 copy). Everything is drained at the end of a chunk: a group in flight across the loop
// edge makes ptxas serialise all of them.
// The last warpgroup: warp 0 moves records in (two buffers) and S, R out, one bulk copy each; warps 1-3 write o.
// Floor: kernels.md 8.4, 157-163 us for T 8192 of one head of 128 on resident operands.
#include "kernels/cuda/kda/chunk_hopper.cuh"
#include "kernels/cuda/kda/chunk_tiles.cuh"

namespace k3::cuda::kda::hopper {
namespace {

constexpr int kStages = 2, kOutputWarps = 3;

template <int kDim>
struct Layout {
  using Block = Record<kDim>;
  static constexpr int kGroups = kDim / 64, kThreads = 128 * kGroups + 128;
  static constexpr int kOutput = kStages * Block::kStride, kResiduals = kOutput + Block::kOperand,
                       kState = kResiduals + Block::kOperand, kBarriers = kState + Block::kState,
                       kBytes = kBarriers + 128 + 1024;
};
struct Addresses {  // in shared space
  uint32_t base, barriers;
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return barriers + 16 + 8 * stage; }
  __device__ __forceinline__ uint32_t output_full() const { return barriers + 32; }
  __device__ __forceinline__ uint32_t output_empty() const { return barriers + 40; }
  __device__ __forceinline__ uint32_t state_full() const { return barriers + 48; }
  __device__ __forceinline__ uint32_t state_empty() const { return barriers + 56; }
  __device__ __forceinline__ uint32_t residuals_full() const { return barriers + 64; }
  __device__ __forceinline__ uint32_t residuals_empty() const { return barriers + 72; }
};

template <int kDim, bool kOutput, bool kKeep>
__device__ __forceinline__ void state_warpgroup(const ForwardInputs& in, const ForwardOutputs& out, const Addresses& at,
                                                float factor, std::int64_t state_at, int group, int chunks) {
  using Block = Record<kDim>;
  using Place = Layout<kDim>;
  constexpr int kSteps = kDim / 16;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int value = 64 * group + 16 * warp + lane / 4, key0 = 2 * (lane % 4);
  float S[kDim / 2], o[32];
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      S[4 * j + e] =
          in.initial_state ? factor * in.initial_state[state_at + (8 * j + key0 + e % 2) * kDim + value + 8 * (e / 2)]
                           : 0.f;

  const auto flush = [&](int chunk) {  // O^T of `chunk` to shared memory, token-major
    barrier_wait(at.output_empty(), (chunk & 1) ^ 1);
    uint32_t pairs[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) pairs[i] = half_pair(o[2 * i], o[2 * i + 1]);
    put_transposed(at.base + Place::kOutput + group * kPanelBytes, 16 * warp, pairs);
    warp_arrive(at.output_full());
  };

  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int stage = chunk % kStages;
    const uint32_t block = at.base + stage * Block::kStride;
    uint32_t left[kDim / 4], r_bits[16];
    float r[32];
#pragma unroll
    for (int i = 0; i < kDim / 4; ++i) left[i] = half_pair(S[2 * i], S[2 * i + 1]);
    barrier_wait(at.full(stage), chunk / kStages & 1);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const uint64_t w = panel_descriptor(block + Block::kWeightedKeys + k / 4 * kPanelBytes + k % 4 * 32);
      if (k == 0) wgmma_half<0, -1, 0>(r, left, w);
      else wgmma_half<1, -1, 0>(r, left + 4 * k, w);
    }
    wgmma_commit();
    wgmma_wait<1>();  // costs nothing; without it ptxas waits for everything before the sums below are touched
    if constexpr (kOutput) {
      settle(o);
      if (chunk > 0) flush(chunk - 1);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const uint64_t q = panel_descriptor(block + Block::kDecayedQueries + k / 4 * kPanelBytes + k % 4 * 32);
        if (k == 0) wgmma_half<0, 1, 0>(o, left, q);
        else wgmma_half<1, 1, 0>(o, left + 4 * k, q);
      }
      wgmma_commit();
    }
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      const float2 decay = load_shared_float2(block + Block::kDecay + (8 * j + key0) * 4);
      S[4 * j] *= decay.x, S[4 * j + 1] *= decay.y, S[4 * j + 2] *= decay.x, S[4 * j + 3] *= decay.y;
    }
    if constexpr (kKeep) {
      barrier_wait(at.state_empty(), (chunk & 1) ^ 1);
#pragma unroll
      for (int half = 0; half < kDim / 64; ++half)
        put_transposed(at.base + Place::kState + (half * (kDim / 64) + group) * kPanelBytes, 16 * warp,
                       left + 16 * half);
      async_proxy_fence();
      warp_arrive(at.state_full());
    }
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      load_transposed(*reinterpret_cast<uint32_t (*)[4]>(&r_bits[4 * tile]),
                      far(block + Block::kWeightedValues + group * kPanelBytes, 16 * tile, 16 * warp));
    wgmma_wait<kOutput ? 1 : 0>();  // R is there, the Qd product may still run
    settle(r);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float2 u = both_halves(r_bits[i]);
      r_bits[i] = half_pair(u.x + r[2 * i], u.y + r[2 * i + 1]);
    }
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma_half<1, 1, 1>(S, r_bits + 4 * k, panel_descriptor(block + Block::kRestoredKeys + k * 2048, kPanelBytes));
    wgmma_commit();
    if constexpr (kOutput) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        wgmma_half<1, 1, 0>(o, r_bits + 4 * k, panel_descriptor(block + Block::kScores + k * 32));
      wgmma_commit();
    }
    if constexpr (kKeep) {
      barrier_wait(at.residuals_empty(), (chunk & 1) ^ 1);
      put_transposed(at.base + Place::kResiduals + group * kPanelBytes, 16 * warp, r_bits);
      async_proxy_fence();
      warp_arrive(at.residuals_full());
    }
    wgmma_wait<0>();
    settle(S);
    warp_arrive(at.empty(stage));
  }
  if (kOutput && chunks > 0) {
    settle(o);
    flush(chunks - 1);
  }
  if (out.final_state)
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        out.final_state[state_at + (8 * j + key0 + e % 2) * kDim + value + 8 * (e / 2)] = S[4 * j + e] / factor;
}

// One thread: records in; S and R out.
template <int kDim>
__device__ __forceinline__ void move(const Workspace& w, const Addresses& at, std::int64_t first_tile, int heads,
                                     int chunks, bool keep) {
  using Block = Record<kDim>;
  using Place = Layout<kDim>;
  const auto fetch = [&](int chunk) {
    const int stage = chunk % kStages;
    barrier_wait(at.empty(stage), (chunk / kStages & 1) ^ 1);
    barrier_arrive_expect(at.full(stage), Block::kBytes);
    bulk_copy_in(at.base + stage * Block::kStride,
                 w.records + (first_tile + static_cast<std::int64_t>(chunk) * heads) * Block::kStride, Block::kBytes,
                 at.full(stage));
  };
  for (int chunk = 0; chunk < min(kStages, chunks); ++chunk) fetch(chunk);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t tile = first_tile + static_cast<std::int64_t>(chunk) * heads;
    if (keep) {
      barrier_wait(at.state_full(), chunk & 1);
      bulk_copy_out(w.states + tile * Block::kState, at.base + Place::kState, Block::kState);
      bulk_commit();
      barrier_wait(at.residuals_full(), chunk & 1);
      bulk_copy_out(w.residuals + tile * Block::kOperand, at.base + Place::kResiduals, Block::kOperand);
      bulk_commit();
      bulk_wait_read<1>();
      barrier_arrive(at.state_empty());
    }
    if (chunk + kStages < chunks) fetch(chunk + kStages);
    if (keep) {
      bulk_wait_read<0>();
      barrier_arrive(at.residuals_empty());
    }
  }
  if (keep) bulk_wait_written();
}

// o = scale / factor of the panels, four channels a lane.
template <int kDim>
__device__ __forceinline__ void output_warp(const ForwardInputs& in, const ForwardOutputs& out, const Addresses& at,
                                            float factor, int which, std::int64_t first_token, std::int64_t tokens,
                                            int head, int chunks) {
  constexpr int kLanes = kDim / 4, kRows = 32 / kLanes;  // of a row; rows a warp writes at once
  const int lane = threadIdx.x % 32, channel = lane % kLanes * 4;
  const float weight = in.scale / factor;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t token0 = static_cast<std::int64_t>(chunk) * kTokens;
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kTokens), tokens - token0));
    barrier_wait(at.output_full(), chunk & 1);
#pragma unroll 4
    for (int row = which * kRows + lane / kLanes; row < count; row += kOutputWarps * kRows) {
      const uint2 bits = load_shared_uint2(at.base + Layout<kDim>::kOutput + panel_place(row, channel));
      const float2 x = both_halves(bits.x), y = both_halves(bits.y);
      const float4 o = make_float4(weight * x.x, weight * x.y, weight * y.x, weight * y.y);
      if (out.type == Type::fp32) store4(row_pointer<float>(out.o, first_token + token0 + row, head) + channel, o);
      else store4(row_pointer<__nv_bfloat16>(out.o, first_token + token0 + row, head) + channel, o);
    }
    warp_arrive(at.output_empty());
  }
}

template <int kDim, bool kOutput, bool kKeep>
__global__ void __launch_bounds__(Layout<kDim>::kThreads, kDim == 64 ? 2 : 1)
    scan_kernel(const __grid_constant__ ForwardInputs in, const __grid_constant__ ForwardOutputs out,
                const __grid_constant__ Workspace w) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Place = Layout<kDim>;
  constexpr int kGroups = Place::kGroups;
  const uint32_t base = (shared_address(shared_memory<unsigned char>()) + 1023) / 1024 * 1024;
  const Addresses at{base, base + Place::kBarriers};
  const int heads = in.shape.heads, head = blockIdx.x % heads, sequence = blockIdx.x / heads;
  const int first_chunk = w.chunk_starts[sequence], chunks = w.chunk_starts[sequence + 1] - first_chunk;
  const std::int64_t first_token = in.starts[sequence], tokens = in.starts[sequence + 1] - first_token;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(at.full(stage), 1);
      barrier_init(at.empty(stage), 4 * kGroups);
    }
    barrier_init(at.output_full(), 4 * kGroups), barrier_init(at.output_empty(), kOutputWarps);
    barrier_init(at.state_full(), 4 * kGroups), barrier_init(at.state_empty(), 1);
    barrier_init(at.residuals_full(), 4 * kGroups), barrier_init(at.residuals_empty(), 1);
    barrier_init_fence();
  }
  __syncthreads();
  const float factor = value_factor(w.largest_v[sequence * heads + head]);
  const int group = threadIdx.x / 128;
  if (group == kGroups) {
    registers_down<kDim == 64 ? 72 : 88>();
    const int warp = threadIdx.x / 32 % 4;
    if (warp == 0) {
      if (threadIdx.x % 32 == 0)
        move<kDim>(w, at, static_cast<std::int64_t>(first_chunk) * heads + head, heads, chunks, kKeep);
    } else if (kOutput) {
      output_warp<kDim>(in, out, at, factor, warp - 1, first_token, tokens, head, chunks);
    }
  } else {
    registers_up<kDim == 64 ? 184 : 208>();
    state_warpgroup<kDim, kOutput, kKeep>(
        in, out, at, factor, (static_cast<std::int64_t>(sequence) * heads + head) * kDim * kDim, group, chunks);
  }
#endif  // elsewhere chunk_path() is plain and nobody launches it
}

}  // namespace

cudaError_t launch_scan(const ForwardInputs& in, const ForwardOutputs* outputs, const Workspace& workspace,
                        cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(in.shape.sequences) * in.shape.heads);
  const ForwardOutputs out = outputs ? *outputs : ForwardOutputs{};
  const auto with = [&]<int kDim>() {
    const auto run = [&](auto kernel) {
      return launch(kernel, grid, Layout<kDim>::kThreads, Layout<kDim>::kBytes, stream, in, out, workspace);
    };
    if (!workspace.states) return run(scan_kernel<kDim, true, false>);
    return outputs ? run(scan_kernel<kDim, true, true>) : run(scan_kernel<kDim, false, true>);
  };
  return in.shape.dim == 64 ? with.template operator()<64>() : with.template operator()<128>();
}

}  // namespace k3::cuda::kda::hopper
