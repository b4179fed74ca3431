// Step 7, the final shape, on Hopper: the library's own kernels (src/kernels/cuda/kda/kda.h, chunk_hopper*.cu), called
// here as step 6 calls its two. What has changed on the way from step 6:
//   wgmma     four warps issue one product of m64 n64 or n128; the right operand is read from shared memory by the
//             tensor core itself, so the 208 loads a warp and chunk of step 6 are gone. The dataflow is the same: S^T
//             in the sums, pairs of sums as the next left operand. One block a head, two state warpgroups of 64 value
//             columns each.
//   chunk 64  the chain of a chunk costs nearly the same for 64 tokens as for 32, so half as many chains. The diagonal
//             is cut into tiles of 16 with a reference each; the tiles below it have a reference of their own.
//   TMA       a record is one contiguous block, already in the swizzled layout that wgmma reads; one thread brings it
//             by a bulk copy to a ring of two and an mbarrier counts the bytes. Nobody computes an address.
//   roles     one warp feeds, three write o, eight compute; setmaxnreg gives the computing ones the registers.
//   fp16      operands at 2^-11 instead of bf16's 2^-9: decays are at most 1, values are scaled per head to fit.
//   gates     without the bound of -5: tiles that decay deeper than the numbers reach are summed pair by pair.
// Bytes a token and head: 1284 + 1160 in the factor kernel, 1160 + 256 in the scan. Floor of the fed state loop:
// 0.25 ms at T 8192 H 96. The whole takes 1.14 ms there.
// The serving path (prefill.h) is this once more with bf16 operands, the convolution, norm and gates fused into the
// factor kernel, the output norm into the state kernel, and few heads split into segments that run at the same time.
#include <algorithm>

#include "kernels/cuda/kda/kda.h"
#include "ladder.h"

namespace k3::learn::kda {
namespace {

k3::cuda::kda::Shape shape_of(int tokens, int heads) { return {tokens, 1, heads, kDim}; }

}  // namespace

bool step7_available() {
  return k3::cuda::kda::chunk_path(shape_of(1, 1), k3::cuda::kda::Type::bf16) == k3::cuda::kda::ChunkPath::hopper;
}
std::size_t step7_workspace_bytes(int tokens, int heads) {
  return k3::cuda::kda::forward_workspace_bytes(shape_of(tokens, heads), k3::cuda::kda::Keep::nothing);
}
cudaError_t step7_hopper(const Arguments& a, cudaStream_t stream) {
  using namespace k3::cuda::kda;
  const std::int64_t row = static_cast<std::int64_t>(a.heads) * kDim;
  ForwardInputs in;
  in.shape = shape_of(a.tokens, a.heads);
  in.q = {a.q, row, kDim}, in.k = {a.k, row, kDim}, in.v = {a.v, row, kDim}, in.g = {a.g, row, kDim};
  in.beta = {a.beta, a.heads, 1};
  in.starts = a.starts, in.initial_state = a.state_in, in.scale = a.scale;
  return forward(in, {Type::bf16, {a.o, row, kDim}, a.state_out}, Keep::nothing, a.workspace, stream);
}

}  // namespace k3::learn::kda
