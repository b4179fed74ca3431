// Kimi Delta Attention for prompts on Hopper (sm_90a): from the raw projections to the gated output, dim 128, bf16,
// bounded gate. The same arguments and the same function as step.h (commit is not used: every token counts), in
// chunks of C = 64 tokens:
//   factors  one block a chunk and head: convolution, norms, gate, then A, T = (I + L)^-1, W = T (beta k e^G),
//            U = T (beta v), the decayed operands
//   state    one block a row and head, R = U - W S, O = Qd S + A R, S <- e^(G_C) S + Kb^T R: two warpgroups with 64
//            value columns each, the state in tensor core registers; two more make the output of O
// With few rows and heads the chunks of a row are split into segments that run at the same time (prefill_split.h).
//
// The gate's bound of -5 makes the diagonal 16 x 16 tiles plain products: reference = start of the tile, row factors
// >= 2^-115.4, column factors <= 2^115.4, both bf16 numbers; entries above the diagonal may be infinite and are removed
// by a select.
//
// Between the kernels lies one block a chunk and head, already in the shared-memory layout of the products (128-byte
// swizzle), brought in by bulk copies: Kb, W, Qd, U 16 KB each, A 8 KB, the chunk's decay 512 bytes. Bytes a token and
// head: 1026 + 1160 in the first kernel, 1160 + 512 in the second: 3.0 GB at T 8192 H 96, floor 0.75 ms at 4 TB/s when
// nothing stays in the L2. The host walks the prompt in slabs of chunks, so that the workspace stays small.
// Precision: gates, sums of gates, T and the state in fp32; operands of products rounded once to bf16; O rounded to
// bf16 before its norm.
#pragma once

#include "kernels/cuda/kda/step.h"

namespace k3::cuda::kda {

// Whether this device and these shapes have the kernels; otherwise the plain form serves.
bool prefill_supported(int device_capability, const StepArguments& arguments);
// longest: tokens of the longest row, or an upper bound known to the host. slab_bytes: blocks between the two kernels
// at a time; the workspace is about that large (never less than one chunk of every row and head). segments: into how
// many the longest row of a slab is split (prefill_split.h), 0: as planned for the current device.
inline constexpr std::int64_t kSlabBytes = std::int64_t{768} << 20;
std::size_t prefill_workspace_bytes(std::int64_t longest, int rows, int heads, std::int64_t slab_bytes = kSlabBytes,
                                    int segments = 0);
cudaError_t prefill(const StepArguments& arguments, std::int64_t longest, void* workspace, cudaStream_t stream,
                    std::int64_t slab_bytes = kSlabBytes, int segments = 0);

}  // namespace k3::cuda::kda
