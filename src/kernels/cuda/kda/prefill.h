// Kimi Delta Attention for prompts on Hopper (sm_90a): from the raw projections to the gated output in two kernels,
// dim 128, bf16, bounded gate.
// The same arguments and the same function as step.h (commit is not used: every token counts), in chunks of C = 64
// tokens:
//   factors  one block a chunk and head: convolution, norms, gate, then A, T = (I + L)^-1, W = T (beta k e^G), U = T
//   (beta v), the decayed operands
//   state    one block a row and head: R = U - S^T W^T ..., two warpgroups with 64 value columns each, state in tensor
//   core registers;
//            a third warpgroup feeds them and turns O into the gated, normalised output
//
// The gate's bound of -5 makes the diagonal 16 x 16 tiles plain products: reference = start of the tile, row factors
// >= 2^-115.4, column
// factors <= 2^115.4, both bf16 numbers; entries above the diagonal may be infinite and are removed by a select.
//
// Between the kernels lies one block a chunk and head, already in the shared-memory layout of the products (128-byte
// swizzle), so that one bulk
// copy brings it in: Kb, W, Qd, U 16 KB each, A 8 KB, the chunk's decay 512 bytes. Bytes a token and head: 1026 + 1160
// in the first kernel,
// 1160 + 512 in the second: 3.0 GB at T 8192 H 96, floor 0.75 ms at 4 TB/s when nothing stays in the L2. The host
// therefore walks the prompt
// in slabs of chunks whose blocks fit the L2.
// Precision: gates, sums of gates, T and the state in fp32; operands of products rounded once to bf16; O rounded to
// bf16 before its norm.
#pragma once

#include "kernels/cuda/kda/step.h"

namespace k3::cuda::kda {

// Whether this device and these shapes have the kernels; otherwise the plain form serves.
bool prefill_supported(int device_capability, const StepArguments& arguments);
// longest: tokens of the longest row, or an upper bound known to the host. slab_bytes: blocks between the two kernels
// at a time; the workspace
// is about that large (never less than one chunk of every row and head).
inline constexpr std::int64_t kSlabBytes = std::int64_t{768} << 20;
std::size_t prefill_workspace_bytes(std::int64_t longest, int rows, int heads, std::int64_t slab_bytes = kSlabBytes);
cudaError_t prefill(const StepArguments& arguments, std::int64_t longest, void* workspace, cudaStream_t stream,
                    std::int64_t slab_bytes = kSlabBytes);

}  // namespace k3::cuda::kda
