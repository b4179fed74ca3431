// Step 5, the chunk form on the tensor cores, one block of 8 warps per head: for each chunk of 32 tokens first its
// factors, then the state (chunk_mma.cuh, where the decays' reference and the dataflow are explained).
//   A, L = (relative to the middle) Q K^T, K K^T;   T = (I + L)^-1 by substitution;   W, U = T beta (K e^G), T beta V
//   R = U - W S;   O = (scale Q e^G) S + A R;   S <- e^G_C (.) S + (K e^(G_C - G))^T R
// Bytes a token and head: 1540. Operations: 70 k multiply-adds on the tensor cores (whole tiles, so the upper halves
// too), 512 exponentials instead of the 2112 of step 4: factors per row and column, not per pair.
// Limited by the order of things inside one block: loads, then exponentials, then one warp that inverts while seven
// wait, then products; each has the multiprocessor for itself and leaves most of it idle. And 96 blocks use 96 of 132.
// 2.3 ms at T 8192 H 96, 9.1 us a chunk.
// Next: the factors of a chunk need no state. Compute those of all chunks at once, elsewhere.
#include "chunk_mma.cuh"

namespace k3::learn::kda {
namespace {

struct Shared {
  Record record;
  FactorTiles tiles;
};

__global__ void __launch_bounds__(kThreads) fused_kernel(const __grid_constant__ Arguments a) {
  Shared& s = *shared_memory<Shared>();
  const int head = blockIdx.x;
  const std::int64_t at = static_cast<std::int64_t>(head) * kDim * kDim;
  TransposedState state;
  state.each([&](float& x, int offset) { x = a.state_in[at + offset]; });
  for (int first = 0; first < a.tokens; first += kChunk) {
    chunk_factors(a, s.record, s.tiles, head, first);
    __syncthreads();
    state.advance(a, s.record, head, first);
    __syncthreads();
  }
  state.each([&](float& x, int offset) { a.state_out[at + offset] = x; });
}

}  // namespace

cudaError_t step5_tensor_cores(const Arguments& a, cudaStream_t stream) {
  return launch(fused_kernel, dim3(a.heads), kThreads, sizeof(Shared), stream, a);
}

}  // namespace k3::learn::kda
