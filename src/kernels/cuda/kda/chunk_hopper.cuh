// The fp16 chunk form of sm_90 for bf16 inputs of dim 64 and 128: where its kernels keep their tiles. Chunks of 64
// tokens; formulas and steps as in kda.h.
//
// Every operand of a product is fp16 (2^-11, as tf32), every sum fp32. Decays are at most 1 and keys are normalised, so
// W, Kb, Qd, A and T lie in [-1, 1]. What scales with the values (U, R, S) or with their gradient (dO, dR, dS, X)
// is multiplied by a power of two per sequence and head, so that the largest |v| lies in [1/2, 1) and the largest |dO|
// in [1/32, 1/16): 2^16 and 2^20 of room for the states. The factor `scale` of the queries is part of dO's.
//
// A record holds what the scans read of a chunk and head, panels of half_panels.cuh:
//   U [64, dim], W [64, dim], Qd [64, dim], Kb [64, dim], A [64, 64], e^(G_C) [dim] fp32
// T [64, 64], R and X [64, dim] are panels too; S and dS [dim, dim] are panels of 64 keys x 64 values.
//
// Bytes a token and head at dim 128: ranges 512; factors read 1280, write 1290; the scan reads 1160, writes 1024; back
// reads 1290, writes 768; gradients read 3072, write 1280: 11.7 KB, 9.2 GB and 2.2 ms at T8192 H96 and 4.2 TB/s.
// Operations: 0.2 MFLOP forward, 0.35 backward in products; about 11 exponentials a channel.
#pragma once

#include "kernels/cuda/kda/half_panels.cuh"
#include "kernels/cuda/kda/chunk_workspace.cuh"

namespace k3::cuda::kda::hopper {

inline constexpr int kTokens = 64;                   // of a chunk
inline constexpr int kTile = 16, kTiles = kTokens / kTile;  // decays are relative to the start or end of a tile
// Bits of decay over a tile beyond which e^-G leaves fp32, so that its pairs are summed one by one.
inline constexpr float kDeep = 120.f;

template <int kDim>
struct Record {
  static constexpr int kOperand = kDim / 64 * kPanelBytes;
  static constexpr int kWeightedValues = 0, kWeightedKeys = kOperand, kDecayedQueries = 2 * kOperand,
                       kRestoredKeys = 3 * kOperand, kScores = 4 * kOperand, kDecay = kScores + kPanelBytes;
  static constexpr int kBytes = kDecay + kDim * 4, kStride = (kBytes + 1023) / 1024 * 1024;
  static constexpr int kState = kDim / 64 * kOperand;  // bytes of S
};

struct Workspace {
  int* chunk_starts;         // [sequences + 1]
  ChunkPlace* places;        // [most_chunks]
  std::uint32_t* largest_v;  // [sequences, heads] bits of the largest |v| (and |S0| / 1024)
  unsigned char* records;    // [tiles] of Record::kStride
  unsigned char* inverse;    // T   [tiles] panels       kept for backward only
  unsigned char* states;     // S   [tiles]              kept for backward only
  unsigned char* residuals;  // R   [tiles]              kept for backward only
};
struct Gradients {
  std::uint32_t* largest_d;    // [sequences, heads] bits of the largest |dO| (and |dS_T| / 1024)
  unsigned char* d_states;     // dS at the end of the chunk  [tiles]
  unsigned char* d_weighted;   // X = T^T dR, the gradient of beta (v - (k e^G)^T S)  [tiles]
};

std::size_t place(Workspace& workspace, const Shape& shape, Keep keep, void* base);
std::size_t place(Gradients& workspace, const Shape& shape, void* base);
__host__ __device__ inline std::int64_t most_chunks(const Shape& shape) {
  return shape.tokens / kTokens + shape.sequences;
}

// Powers of two that bring values and their gradients into range.
__device__ __forceinline__ float range_factor(std::uint32_t largest, int headroom) {
  const int exponent = static_cast<int>(largest >> 23) - 127;  // largest < 2^(exponent + 1)
  if (largest == 0 || exponent > 100) return 1.f;              // nothing to scale, or not finite
  return from_bits(static_cast<std::uint32_t>(127 - max(exponent + 1, -100) - headroom) << 23);
}
__device__ __forceinline__ float value_factor(std::uint32_t largest) { return range_factor(largest, 0); }
__device__ __forceinline__ float gradient_factor(std::uint32_t largest) { return range_factor(largest, 4); }

cudaError_t launch_plan(const ForwardInputs& inputs, const Workspace& workspace, cudaStream_t stream);
cudaError_t launch_value_range(const ForwardInputs& inputs, const Workspace& workspace, cudaStream_t stream);
cudaError_t launch_factors(const ForwardInputs& inputs, const Workspace& workspace, cudaStream_t stream);
cudaError_t launch_scan(const ForwardInputs& inputs, const ForwardOutputs* outputs, const Workspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_gradient_range(const BackwardArguments& arguments, const Workspace& workspace,
                                  const Gradients& gradients, cudaStream_t stream);
cudaError_t launch_scan_backward(const BackwardArguments& arguments, const Workspace& workspace,
                                 const Gradients& gradients, cudaStream_t stream);
cudaError_t launch_gradients(const BackwardArguments& arguments, const Workspace& workspace, const Gradients& gradients,
                             cudaStream_t stream);

cudaError_t forward(const ForwardInputs& inputs, const ForwardOutputs& outputs, Keep keep, void* workspace,
                    cudaStream_t stream);
cudaError_t backward(const BackwardArguments& arguments, void* workspace, cudaStream_t stream);

}  // namespace k3::cuda::kda::hopper
