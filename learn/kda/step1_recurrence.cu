// Step 1, the recurrence as it is written: one block per head, one thread per value column, the state in global memory.
//   D = e^g (.) S;   u = beta (v - D^T k);   S <- D + k u^T;   o = scale S^T q
// Layout: thread j owns S[0..127][j], so that the 32 lanes of a warp touch neighbouring addresses; q, k and e^g of the
// token lie in shared memory, where all threads read the same element at the same time.
// Bytes a token and head: 1540 from memory, and the state four times: read and written by the decay, read and written
// by the update, 256 KiB. Operations: 7 x 128 x 128 = 115 k.
// Limited by those 256 KiB: 206 GB at T 8192 H 96, which the caches move in 36 ms (5.7 TB/s). 96 states of 64 KiB stay
// in the L2, so HBM sees little of them.
// Next: the state does not need an address at all. Registers.
#include "kernels/cuda/common/device.cuh"
#include "ladder.h"

namespace k3::learn::kda {
namespace {

using namespace k3::cuda;

__global__ void __launch_bounds__(kDim) recurrence_kernel(const __grid_constant__ Arguments a) {
  float *q = shared_memory<float>(), *k = q + kDim, *decay = k + kDim;
  const int head = blockIdx.x, column = threadIdx.x;
  float* S = a.state_out + head * kDim * kDim + column;  // row i of this thread's column is S[i * kDim]
  for (int i = 0; i < kDim; ++i) S[i * kDim] = a.state_in[head * kDim * kDim + i * kDim + column];

  for (int token = 0; token < a.tokens; ++token) {
    const std::int64_t row = static_cast<std::int64_t>(token) * a.heads + head, at = row * kDim + column;
    __syncthreads();  // the token before has been read
    q[column] = load1(a.q + at), k[column] = load1(a.k + at), decay[column] = fast_exp(a.g[at]);
    __syncthreads();
    float seen = 0;
#pragma unroll 16
    for (int i = 0; i < kDim; ++i) {
      const float decayed = decay[i] * S[i * kDim];
      S[i * kDim] = decayed;
      seen += decayed * k[i];
    }
    const float u = a.beta[row] * (load1(a.v + at) - seen);
    float o = 0;
#pragma unroll 16
    for (int i = 0; i < kDim; ++i) {
      const float updated = S[i * kDim] + k[i] * u;
      S[i * kDim] = updated;
      o += updated * q[i];
    }
    store1(a.o + at, a.scale * o);
  }
}

}  // namespace

cudaError_t step1_recurrence(const Arguments& a, cudaStream_t stream) {
  return launch(recurrence_kernel, dim3(a.heads), kDim, 3 * kDim * sizeof(float), stream, a);
}

}  // namespace k3::learn::kda
