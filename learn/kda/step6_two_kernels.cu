// Step 6, two kernels: the factors of every chunk and head in parallel, then the states, chunk after chunk. The
// arithmetic is that of step 5 (chunk_mma.cuh); a record [chunk][head] of 40 KiB lies between the two.
//   factors  one block a chunk and head, 24,576 at T 8192 H 96, two on a multiprocessor: while one waits for its loads
//            or its inverse, the other computes
//   state    one block a head; records come by asynchronous copies, one in use, the next on its way
// Bytes a token and head: 1284 + 1280 in the first kernel, 1280 + 256 in the second, 4.1 KB instead of 1540. The round
// trip costs 0.5 ms at T 8192 H 96 and still pays: what is serial is now only the chain of three products. 1.0 ms for
// the factors (2.0 GB, floor 0.48) and 0.59 for the states (1.2 GB, floor 0.29), 2.3 us a chunk.
// Limited, first kernel: by shared memory and instruction issue around small products; second: by that chain at the
// latency of mma.sync, whose operands each warp loads from shared memory itself.
// Next: larger products issued by four warps together, operands read by the tensor core (wgmma), copies by the TMA.
#include "chunk_mma.cuh"

namespace k3::learn::kda {
namespace {

struct FactorShared {
  Record record;
  FactorTiles tiles;
};
__device__ __forceinline__ Record* record_of(const Arguments& a, int chunk, int head) {
  return static_cast<Record*>(a.workspace) + static_cast<std::int64_t>(chunk) * a.heads + head;
}

__global__ void __launch_bounds__(kThreads, 2) factors_kernel(const __grid_constant__ Arguments a) {
  FactorShared& s = *shared_memory<FactorShared>();
  const int head = blockIdx.x % a.heads, chunk = blockIdx.x / a.heads;
  chunk_factors(a, s.record, s.tiles, head, chunk * kChunk);
  __syncthreads();
  const uint4* from = reinterpret_cast<const uint4*>(&s.record);
  uint4* to = reinterpret_cast<uint4*>(record_of(a, chunk, head));
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(Record) / 16); i += kThreads) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads) state_kernel(const __grid_constant__ Arguments a) {
  Record* ring = shared_memory<Record>();  // two
  const int head = blockIdx.x, chunks = (a.tokens + kChunk - 1) / kChunk;
  const auto fetch = [&](int chunk) {
    if (chunk < chunks)
      for (int i = threadIdx.x; i < static_cast<int>(sizeof(Record) / 16); i += kThreads)
        copy_async_16(reinterpret_cast<uint4*>(ring + chunk % 2) + i,
                      reinterpret_cast<const uint4*>(record_of(a, chunk, head)) + i);
    copy_async_commit();
  };
  fetch(0);
  const std::int64_t at = static_cast<std::int64_t>(head) * kDim * kDim;
  TransposedState state;
  state.each([&](float& x, int offset) { x = a.state_in[at + offset]; });
  for (int chunk = 0; chunk < chunks; ++chunk) {
    fetch(chunk + 1);
    copy_async_wait<1>();
    __syncthreads();
    state.advance(a, ring[chunk % 2], head, chunk * kChunk);
    __syncthreads();  // the next fetch goes where this chunk lies
  }
  state.each([&](float& x, int offset) { a.state_out[at + offset] = x; });
}

}  // namespace

std::size_t step6_workspace_bytes(int tokens, int heads) {
  return static_cast<std::size_t>((tokens + kChunk - 1) / kChunk) * heads * sizeof(Record);
}
cudaError_t step6_two_kernels(const Arguments& a, cudaStream_t stream) {
  const int chunks = (a.tokens + kChunk - 1) / kChunk;
  const cudaError_t error =
      launch(factors_kernel, dim3(chunks * a.heads), kThreads, sizeof(FactorShared), stream, a);
  if (error != cudaSuccess) return error;
  return launch(state_kernel, dim3(a.heads), kThreads, 2 * sizeof(Record), stream, a);
}

}  // namespace k3::learn::kda
