// The state kernel of prefill.h (sm_90a). One block per row and head, three warpgroups:
//   0, 1  the state, transposed, 64 value columns each: S^T [64, 128] fp32 in the sums of m64n128k16
//           R^T = U^T - S^T W^T            m64 n64 k128   A = bf16(S^T) from registers, B = W along rows
//           O^T = S^T Qd^T + R^T A^T       m64 n64        the same A; then R^T with B = A along rows
//           S^T = e^(G_C) S^T + R^T Kb     m64 n128 k64   A = bf16(R^T), B = Kb across rows
//         Order in a chunk: R is issued; in its shadow O of the chunk before leaves for shared memory and S is decayed
//         (the tensor core reads the
//         bf16 copy); Qd follows R and runs while R is packed; everything is drained at the end of the chunk, since a
//         group in flight
//         across the loop edge makes ptxas serialise all of them.
//   2     warp 0 feeds the blocks of operands (two buffers, one bulk copy each), warps 1-3 normalise and gate the
//   output
// Floor: kernels.md 8.4, 157-163 us for T 8192 of one head on resident operands.
#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/kda/prefill_blocks.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {

constexpr int kThreads = 384, kStages = 2, kOutputWarps = 3;
constexpr int kOutput = kStages * kBlockStride, kBarriers = kOutput + 2 * kPanel, kSharedBytes = kBarriers + 64 + 1024;

struct Addresses {  // in shared space
  uint32_t base;
  __device__ __forceinline__ uint32_t stage(int s) const { return base + s * kBlockStride; }
  __device__ __forceinline__ uint32_t output() const { return base + kOutput; }
  __device__ __forceinline__ uint32_t full(int s) const { return base + kBarriers + 8 * s; }
  __device__ __forceinline__ uint32_t empty(int s) const { return base + kBarriers + 16 + 8 * s; }
  __device__ __forceinline__ uint32_t output_full() const { return base + kBarriers + 32; }
  __device__ __forceinline__ uint32_t output_empty() const { return base + kBarriers + 40; }
};

// Where this lane's 16-byte row of the four 8 x 8 matrices lies: tokens 16 tile .. of a panel, this warp's 16 value
// columns.
__device__ __forceinline__ uint32_t transposed_address(uint32_t panel, int tile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  return panel + panel_offset(16 * tile + lane / 16 * 8 + lane % 8, (16 * warp + lane / 8 % 2 * 8) * 2);
}

[[maybe_unused]] __device__ __forceinline__ void state_warpgroup(const StepArguments& a, const Addresses& at,
                                                                 float* global_state, int group, int chunks) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int value = 64 * group + 16 * warp + lane / 4, key0 = 2 * (lane % 4);
  float S[64], o[32];
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) S[4 * j + e] = global_state[(8 * j + key0 + e % 2) * kDim + value + 8 * (e / 2)];

  const uint32_t output = at.output() + group * kPanel;
  const auto flush = [&](int chunk) {  // O^T of `chunk` to shared memory, token-major
    barrier_wait(at.output_empty(), (chunk & 1) ^ 1);
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      store_transposed(transposed_address(output, tile), bf16_pair(o[8 * tile], o[8 * tile + 1]),
                       bf16_pair(o[8 * tile + 2], o[8 * tile + 3]), bf16_pair(o[8 * tile + 4], o[8 * tile + 5]),
                       bf16_pair(o[8 * tile + 6], o[8 * tile + 7]));
    __syncwarp();
    if (lane == 0) barrier_arrive(at.output_full());
  };

  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int stage = chunk % kStages;
    const uint32_t block = at.stage(stage);
    uint32_t left[32], r_bits[16];
    float r[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) left[i] = bf16_pair(S[2 * i], S[2 * i + 1]);
    barrier_wait(at.full(stage), chunk / kStages & 1);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const uint64_t w = panel_descriptor(block + kWeightedKeys + k / 4 * kPanel + k % 4 * 32);
      if (k == 0) wgmma<0, -1, 0>(r, left, w);
      else wgmma<1, -1, 0>(r, left + 4 * k, w);
    }
    wgmma_commit();
    wgmma_wait<1>();  // costs nothing; without it ptxas waits for everything before the sums below are touched
    settle(o);
    if (chunk > 0) flush(chunk - 1);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const uint64_t q = panel_descriptor(block + kDecayedQueries + k / 4 * kPanel + k % 4 * 32);
      if (k == 0) wgmma<0, 1, 0>(o, left, q);
      else wgmma<1, 1, 0>(o, left + 4 * k, q);
    }
    wgmma_commit();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float2 decay = load_shared_float2(block + kDecay + (8 * j + key0) * 4);
      S[4 * j] *= decay.x, S[4 * j + 1] *= decay.y, S[4 * j + 2] *= decay.x, S[4 * j + 3] *= decay.y;
    }
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      load_transposed(*reinterpret_cast<uint32_t (*)[4]>(&r_bits[4 * tile]),
                      transposed_address(block + kWeightedValues + group * kPanel, tile));
    wgmma_wait<1>();  // R is there, the Qd product may still run
    settle(r);
#pragma unroll
    for (int i = 0; i < 16; ++i) r_bits[i] = bf16_pair(both(r_bits[i]).x + r[2 * i], both(r_bits[i]).y + r[2 * i + 1]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma<1, 1, 1>(S, r_bits + 4 * k, panel_descriptor(block + kRestoredKeys + k * 2048, kPanel));
    wgmma_commit();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<1, 1, 0>(o, r_bits + 4 * k, panel_descriptor(block + kScores + k * 32));
    wgmma_commit();
    wgmma_wait<0>();
    settle(S);
    __syncwarp();
    if (lane == 0) barrier_arrive(at.empty(stage));
  }
  settle(o);
  flush(chunks - 1);
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) global_state[(8 * j + key0 + e % 2) * kDim + value + 8 * (e / 2)] = S[4 * j + e];
}

// Warps 1-3 of the last warpgroup: y = o / sqrt(mean o^2 + eps) * weight * sigmoid(gate). A lane owns four channels of
// a token.
[[maybe_unused]] __device__ __forceinline__ void output_warp(const StepArguments& a, const Addresses& at, int which,
                                                             std::int64_t first_token, std::int64_t tokens, int head,
                                                             int chunks) {
  constexpr int kTokens = (kChunk + kOutputWarps - 1) / kOutputWarps;  // of a warp and chunk
  const int lane = threadIdx.x % 32;
  const float4 weight = *reinterpret_cast<const float4*>(a.norm_weight + 4 * lane);
  const auto* gates = static_cast<const __nv_bfloat16*>(a.gate.data) + head * a.gate.head_stride + 4 * lane;
  auto* out = static_cast<__nv_bfloat16*>(a.y.data) + head * a.y.head_stride + 4 * lane;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int count =
        static_cast<int>(min(static_cast<std::int64_t>(kChunk), tokens - static_cast<std::int64_t>(chunk) * kChunk));
    const std::int64_t token0 = first_token + static_cast<std::int64_t>(chunk) * kChunk;
    uint2 gate[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = which + kOutputWarps * i;
      gate[i] = token < count ? *reinterpret_cast<const uint2*>(gates + (token0 + token) * a.gate.token_stride)
                              : make_uint2(0, 0);
    }
    barrier_wait(at.output_full(), chunk & 1);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = which + kOutputWarps * i;
      if (token >= count) break;
      const uint2 bits = load_shared_uint2(at.output() + lane / 16 * kPanel + panel_offset(token, lane % 16 * 8));
      const float4 o = make_float4(both(bits.x).x, both(bits.x).y, both(bits.y).x, both(bits.y).y);
      float square = o.x * o.x + o.y * o.y + o.z * o.z + o.w * o.w;
#pragma unroll
      for (int step = 16; step >= 1; step /= 2) square += shuffle_xor(square, step);
      const float length = inverse_sqrt(square * (1.f / kDim) + a.norm_eps);
      const auto gated = [&](float x, float w, float logit) { return x * length * w * fast_sigmoid(logit); };
      const uint2 y =
          make_uint2(bf16_pair(gated(o.x, weight.x, both(gate[i].x).x), gated(o.y, weight.y, both(gate[i].x).y)),
                     bf16_pair(gated(o.z, weight.z, both(gate[i].y).x), gated(o.w, weight.w, both(gate[i].y).y)));
      *reinterpret_cast<uint2*>(out + (token0 + token) * a.y.token_stride) = y;
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(at.output_empty());
  }
}

// The three last raw values of every channel, once the whole row has been read by the factor kernel.
[[maybe_unused]] __device__ __forceinline__ void write_window(const StepArguments& a, int thread, int threads,
                                                              std::int64_t first_token, std::int64_t tokens, int slot,
                                                              int head) {
  const std::int64_t width = static_cast<std::int64_t>(a.heads) * kDim;
  auto* window = static_cast<__nv_bfloat16*>(a.window) + static_cast<std::int64_t>(slot) * 9 * width +
                 static_cast<std::int64_t>(head) * kDim;
  for (int i = thread; i < 3 * kDim; i += threads) {
    const int which = i / kDim, channel = i % kDim;
    const Rows& raw = which == 0 ? a.q : which == 1 ? a.k : a.v;
    __nv_bfloat16 values[3];
    for (int tap = 0; tap < 3; ++tap) {
      const std::int64_t token = tokens - 3 + tap;
      values[tap] = token >= 0
                        ? static_cast<const __nv_bfloat16*>(
                              raw.data)[(first_token + token) * raw.token_stride + head * raw.head_stride + channel]
                        : window[((tokens + tap) * 3 + which) * width + channel];
    }
    for (int tap = 0; tap < 3; ++tap) window[(tap * 3 + which) * width + channel] = values[tap];
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    state_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const Addresses at{(shared_address(shared_memory<unsigned char>()) + 1023) / 1024 * 1024};
  const int head = blockIdx.x, row = blockIdx.y, slot = a.slots[row];
  const std::int64_t row_first = a.starts[row], row_tokens = a.starts[row + 1] - row_first;
  const std::int64_t slab_first = static_cast<std::int64_t>(slab.first_chunk) * kChunk;
  if (slot < 0 || row_tokens <= slab_first) return;
  const std::int64_t tokens = row_tokens - slab_first;  // from the slab's start on
  const int chunks = static_cast<int>(min(static_cast<std::int64_t>(slab.chunks), (tokens + kChunk - 1) / kChunk));
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(at.full(s), 1);
      barrier_init(at.empty(s), 8);
    }
    barrier_init(at.output_full(), 8);
    barrier_init(at.output_empty(), kOutputWarps);
    barrier_init_fence();
  }
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group == 2) {
    registers_down<88>();
    const int warp = threadIdx.x / 32 % 4;
    if (warp == 0) {
      if (threadIdx.x % 32 == 0)
        for (int chunk = 0; chunk < chunks; ++chunk) {
          const int stage = chunk % kStages;
          barrier_wait(at.empty(stage), (chunk / kStages & 1) ^ 1);
          barrier_arrive_expect(at.full(stage), kBlockBytes);
          bulk_copy_in(at.stage(stage), block_of(slab, row, chunk, a.heads, head), kBlockBytes, at.full(stage));
        }
      __syncwarp();
      if (row_tokens <= slab_first + static_cast<std::int64_t>(slab.chunks) * kChunk)
        write_window(a, threadIdx.x % 32, 32, row_first, row_tokens, slot, head);
    } else {
      output_warp(a, at, warp - 1, row_first + slab_first, tokens, head, chunks);
    }
  } else {
    registers_up<208>();
    state_warpgroup(a, at, a.state + (static_cast<std::int64_t>(slot) * a.heads + head) * kDim * kDim, group, chunks);
  }
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

}  // namespace

cudaError_t launch_state(const StepArguments& a, const Slab& slab, cudaStream_t stream) {
  return launch(state_kernel, dim3(a.heads, a.rows), kThreads, kSharedBytes, stream, a, slab);
}

}  // namespace k3::cuda::kda::prefill_detail
