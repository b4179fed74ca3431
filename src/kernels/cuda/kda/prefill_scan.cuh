// What the kernels that walk the chunks of a row share (prefill_state.cu, prefill_split_pairs.cu; sm_90a): one block
// per row, head and segment, state warpgroups of 64 value columns each, a thread that feeds operand blocks.
//
// The state lies transposed in the sums of m64n128k16: S^T [64 values, 128 keys] fp32, 64 registers a thread. bf16(S^T)
// is then the A operand of the next chunk's products, without any exchange:
//   R^T = U^T - S^T W^T            m64 n64  k128   B = W along rows
//   O^T = S^T Qd^T + R^T A^T       m64 n64         B = Qd, then A, along rows
//   S^T = e^(G_C) S^T + R^T Kb     m64 n128 k64    B = Kb across rows
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/kda/prefill_blocks.cuh"

namespace k3::cuda::kda::prefill_detail {

// ---- the ring of operand blocks; the barriers lie at `barriers`: full[kStages], empty[kStages]
template <int kStages, int kStride>
struct Ring {
  static constexpr int kBytes = kStages * kStride, kBarrierBytes = 16 * kStages;
  uint32_t blocks, barriers;  // in shared space
  __device__ __forceinline__ uint32_t block(int stage) const { return blocks + stage * kStride; }
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return barriers + 8 * (kStages + stage); }
};

// The base of the dynamic shared memory, rounded up to the alignment of panels.
__device__ __forceinline__ uint32_t panel_base() {
  return (shared_address(shared_memory<unsigned char>()) + 1023) / 1024 * 1024;
}

// The same address as a pointer.
__device__ __forceinline__ unsigned char* panel_bytes() {
  unsigned char* start = shared_memory<unsigned char>();
  return start + (panel_base() - shared_address(start));
}

// ---- products; S^T, R^T and O^T are sums of this warpgroup
// d = [d] +- S^T X^T for a [64][128] operand X
template <int kAdd, int kSign>
__device__ __forceinline__ void project(float (&d)[32], const uint32_t (&state)[32], uint32_t operand) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const uint64_t b = further(panel_descriptor(operand), k / 4 * kPanel + k % 4 * 32);
    if (k == 0) wgmma<kAdd, kSign, 0>(d, state, b);
    else wgmma<1, kSign, 0>(d, state + 4 * k, b);
  }
}
// S^T += R^T Kb
__device__ __forceinline__ void restore(float (&state)[64], const uint32_t (&r)[16], uint32_t keys) {
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<1, 1, 1>(state, r + 4 * k, further(panel_descriptor(keys, kPanel), k * 2048));
}
// O^T += R^T A^T
__device__ __forceinline__ void attend(float (&o)[32], const uint32_t (&r)[16], uint32_t scores) {
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<1, 1, 0>(o, r + 4 * k, further(panel_descriptor(scores), k * 32));
}
template <int kCount>
__device__ __forceinline__ void pack(uint32_t (&bits)[kCount / 2], const float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) bits[i] = bf16_pair(x[2 * i], x[2 * i + 1]);
}
// S^T *= e^(G_C), key by key
__device__ __forceinline__ void decay_state(float (&state)[64], uint32_t decays) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float2 decay = load_shared_float2(decays + (8 * j + 2 * (threadIdx.x % 4)) * 4);
    state[4 * j] *= decay.x, state[4 * j + 1] *= decay.y, state[4 * j + 2] *= decay.x, state[4 * j + 3] *= decay.y;
  }
}

// ---- where things of this thread lie
// Its 16-byte row of the four 8 x 8 matrices of 16 tokens of a panel and this warp's 16 value columns.
__device__ __forceinline__ uint32_t transposed_address(uint32_t panel, int tile) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  return panel + panel_offset(16 * tile + lane / 16 * 8 + lane % 8, (16 * warp + lane / 8 % 2 * 8) * 2);
}
// Calls visit(i, key, value) for its 64 elements of the state, given the warpgroup's first value column.
template <class Visit>
__device__ __forceinline__ void each_state_element(int first_value, Visit visit) {
  const int value = first_value + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < 64; ++i) visit(i, 8 * (i / 4) + 2 * (threadIdx.x % 4) + i % 2, value + 8 * (i / 2 % 2));
}
// U^T of 64 tokens, widened: what the sums of R^T start from; the panel of this warpgroup's 64 columns.
__device__ __forceinline__ void load_values(float (&r)[32], uint32_t panel) {
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    uint32_t bits[4];
    load_transposed(bits, transposed_address(panel, tile));
#pragma unroll
    for (int i = 0; i < 4; ++i) r[8 * tile + 2 * i] = both(bits[i]).x, r[8 * tile + 2 * i + 1] = both(bits[i]).y;
  }
}

}  // namespace k3::cuda::kda::prefill_detail
