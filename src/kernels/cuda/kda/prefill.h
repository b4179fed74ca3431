// Kimi Delta Attention for prompts on Hopper (sm_90a): from the raw projections to the gated output, dim 128, bf16,
// bounded gate. The same arguments and the same function as step.h (commit is not used: every token counts), in
// chunks of C = 64 tokens:
//   factors  per chunk and head: convolution, norms, gate, then A, T = (I + L)^-1, W = T (beta k e^G), U = T (beta v),
//            the decayed operands
//   state    per row and head, chunk by chunk, R = U - W S, O = Qd S + A R, S <- e^(G_C) S + Kb^T R: two warpgroups
//            with 64 value columns each, the state in tensor core registers; other warps make the output of O. With few
//            heads each warpgroup on a multiprocessor of its own
// Both can run at the same time, each on its own multiprocessors: the factors come in the order in which the state uses
// them, a flag a block says that it is there, and the state reads most of it from the L2. Or they run one after the
// other, with few heads the chunks of a row in segments at the same time (prefill_split.h). prefill_plan.h chooses.
//
// The gate's bound of -5 makes products of 32 x 32 tokens plain ones, with their middle as reference: the factors of
// rows and columns lie between 2^-115.4 and 2^115.4 and are bf16 numbers; entries above the diagonal may be infinite
// and are removed by a select.
//
// Between the kernels lies one block a chunk and head, already in the shared-memory layout of the products (128-byte
// swizzle), brought in by bulk copies: Kb, W, Qd, U 16 KB each, A 8 KB, the chunk's decay 512 bytes. Bytes a token and
// head: 1026 + 1160 in the first kernel, 1160 + 512 in the second, of which 2698 reach memory when the second finds its
// operands in the L2: 2.1 GB at T 8192 H 96, floor 0.50 ms at 4.2 TB/s; 3.0 GB and 0.72 ms one after the other. The
// host walks the prompt in slabs of chunks, or of rows and heads, so that the workspace stays bounded.
// Precision: sums of gates, T and the state in fp32; operands of products rounded once to bf16; the norm from fp32 O,
// which is then rounded to bf16. SiLU and the output gate's sigmoid by tanh.approx: 1.1e-5 and 4.1e-6 absolute at most
// (test silu-sweep).
#pragma once

#include "kernels/cuda/kda/step.h"

namespace k3::cuda::kda {

// Whether the current device and these shapes have the kernels; otherwise the plain form serves.
bool prefill_supported(const StepArguments& arguments);
struct PrefillOptions {
  std::int64_t slab_bytes = std::int64_t{1536} << 20;  // blocks between the two kernels at a time
  int segments = 0;      // one kernel after the other, the longest row of a slab in that many segments
  int state_blocks = 0;  // both at the same time, this many blocks for the state; neither: as planned for the device
  int ranks = 1;         // multiprocessors of each of these: 2 share its value columns
};
// longest: tokens of the longest row, or an upper bound known to the host. The workspace is about as large as a slab
// (never less than one chunk of every row and head).
std::size_t prefill_workspace_bytes(std::int64_t longest, int rows, int heads, const PrefillOptions& options = {});
cudaError_t prefill(const StepArguments& arguments, std::int64_t longest, void* workspace, cudaStream_t stream,
                    const PrefillOptions& options = {});

}  // namespace k3::cuda::kda
