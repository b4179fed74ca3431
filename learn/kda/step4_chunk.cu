// Step 4, the chunk form in fp32 with plain loops: the algebra, before any tensor core. Chunks of C = 32 tokens.
// G_i = g_1 + .. + g_i inside the chunk. The decayed state before token i is e^G_i (.) S plus what the tokens before it
// in the chunk have added, so u_i = beta_i (v_i - k_i^T [..]) is a triangular system for all u of the chunk:
//   L_ij = beta_i k_i . (k_j e^(G_i - G_j)), i > j          (I + L) R = beta V - beta (K e^G) S
//   W = T beta (K e^G),   U = T beta V,   T = (I + L)^-1    R = U - W S
//   A_ij = scale q_i . (k_j e^(G_i - G_j)), i >= j          O = (scale Q e^G) S + A R
//                                                           S <- e^G_C (.) S + (K e^(G_C - G))^T R
// The left column needs no state: it could be done for all chunks at once. The right column is the serial part.
// Differences of G are taken before the exponential, so no factor exceeds 1, whatever the gate.
// T is not formed here: W and U come from forward substitution, one thread a column.
//
// Layout: one block of 512 threads per head; S [128][128] and five tiles [32][128] fp32 in shared memory, rows 132
// floats apart (16-byte reads down a column of rows meet no bank twice).
// Bytes a token and head: 1540. Operations: 16.5 pairs of 128 exponentials and 256 multiply-adds, 3 x 16,384 with the
// state, 4 k each for W and U and for A R, 59 k multiply-adds: about as many as the recurrence, but as matrix products.
// Limited by shared memory, 20 reads for 64 multiply-adds, and by 96 blocks that hold one multiprocessor each and wait
// at six barriers a chunk. 9.0 ms at T 8192 H 96, 35 us a chunk, slower than step 3: as many multiply-adds,
// exponentials for every pair, operands that no longer lie in registers. The chunk form pays only with what comes next.
// Next: the same products on the tensor cores.
#include "kernels/cuda/common/device.cuh"
#include "ladder.h"

namespace k3::learn::kda {
namespace {

using namespace k3::cuda;

constexpr int kChunk = 32, kThreads = 512, kParts = kThreads / kDim, kRows = kChunk / kParts, kPitch = kDim + 4;

struct Shared {
  float S[kDim][kPitch];
  float q[kChunk][kPitch], k[kChunk][kPitch];  // become Q e^G, K e^(G_C - G)
  float G[kChunk][kPitch];                      // in powers of two
  float W[kChunk][kPitch], U[kChunk][kPitch];  // U becomes R
  float L[kChunk][kChunk + 4], A[kChunk][kChunk + 4], beta[kChunk];
};
__device__ __forceinline__ float4 at4(const float* p) { return *reinterpret_cast<const float4*>(p); }

__global__ void __launch_bounds__(kThreads) chunk_kernel(const __grid_constant__ Arguments a) {
  Shared& s = *shared_memory<Shared>();
  const int head = blockIdx.x, thread = threadIdx.x, column = thread % kDim, part = thread / kDim;
  const std::int64_t state = static_cast<std::int64_t>(head) * kDim * kDim;
  for (int i = part; i < kDim; i += kParts) s.S[i][column] = a.state_in[state + i * kDim + column];

  for (int first = 0; first < a.tokens; first += kChunk) {
    const int count = min(kChunk, a.tokens - first);
    for (int i = part * kRows; i < (part + 1) * kRows; ++i) {  // rows behind the end: zeros, no decay
      const std::int64_t row = static_cast<std::int64_t>(first + i) * a.heads + head, at = row * kDim + column;
      const bool there = i < count;
      s.q[i][column] = there ? a.scale * load1(a.q + at) : 0.f, s.k[i][column] = there ? load1(a.k + at) : 0.f;
      s.U[i][column] = there ? load1(a.v + at) : 0.f, s.G[i][column] = there ? a.g[at] * 1.4426950408889634f : 0.f;
      if (column == 0) s.beta[i] = there ? a.beta[row] : 0.f;
    }
    __syncthreads();
    if (part == 0)
      for (int i = 1; i < kChunk; ++i) s.G[i][column] += s.G[i - 1][column];
    __syncthreads();

    // ---- A and L, two pairs of tokens a thread
    for (int pair = thread; pair < kChunk * kChunk; pair += kThreads) {
      const int i = pair / kChunk, j = pair % kChunk;
      float qk = 0, kk = 0;
      if (i >= j)
        for (int d = 0; d < kDim; d += 4) {
          const float4 Gi = at4(&s.G[i][d]), Gj = at4(&s.G[j][d]), q = at4(&s.q[i][d]), ki = at4(&s.k[i][d]),
                       kj = at4(&s.k[j][d]);
          const float x = kj.x * fast_exp2(Gi.x - Gj.x), y = kj.y * fast_exp2(Gi.y - Gj.y),
                      z = kj.z * fast_exp2(Gi.z - Gj.z), w = kj.w * fast_exp2(Gi.w - Gj.w);
          qk += q.x * x + q.y * y + q.z * z + q.w * w;
          kk += ki.x * x + ki.y * y + ki.z * z + ki.w * w;
        }
      s.A[i][j] = qk, s.L[i][j] = i > j ? s.beta[i] * kk : 0.f;
    }
    __syncthreads();

    // ---- W and U by forward substitution; on the way, the operands that meet the state
    if (part < 2) {
      float x[kChunk];
      const float G_end = s.G[kChunk - 1][column];
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const float G = s.G[i][column];
        if (part == 0) x[i] = s.beta[i] * s.k[i][column] * fast_exp2(G), s.k[i][column] *= fast_exp2(G_end - G);
        else x[i] = s.beta[i] * s.U[i][column], s.q[i][column] *= fast_exp2(G);
      }
#pragma unroll
      for (int i = 1; i < kChunk; ++i)
#pragma unroll
        for (int j = 0; j < i; ++j) x[i] -= s.L[i][j] * x[j];
#pragma unroll
      for (int i = 0; i < kChunk; ++i) (part == 0 ? s.W : s.U)[i][column] = x[i];
    }
    __syncthreads();

    // ---- R = U - W S and (Q e^G) S: this thread's column, 8 rows
    float r[kRows], o[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) r[i] = s.U[part * kRows + i][column];
    for (int d = 0; d < kDim; d += 4) {
      const float S0 = s.S[d][column], S1 = s.S[d + 1][column], S2 = s.S[d + 2][column], S3 = s.S[d + 3][column];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 w = at4(&s.W[part * kRows + i][d]), q = at4(&s.q[part * kRows + i][d]);
        r[i] -= w.x * S0 + w.y * S1 + w.z * S2 + w.w * S3;
        o[i] += q.x * S0 + q.y * S1 + q.z * S2 + q.w * S3;
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) s.U[part * kRows + i][column] = r[i];
    __syncthreads();

    // ---- O += A R;   S <- e^G_C (.) S + (K e^(G_C - G))^T R: this thread's column, 32 keys
    float R[kChunk];
#pragma unroll
    for (int j = 0; j < kChunk; ++j) R[j] = s.U[j][column];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = part * kRows + i;
#pragma unroll
      for (int j = 0; j < kChunk; ++j) o[i] += s.A[row][j] * R[j];
      if (row < count) store1(a.o + (static_cast<std::int64_t>(first + row) * a.heads + head) * kDim + column, o[i]);
    }
    for (int d = part * (kDim / kParts); d < (part + 1) * (kDim / kParts); d += 4) {
      const float4 G = at4(&s.G[kChunk - 1][d]);
      float x = s.S[d][column] * fast_exp2(G.x), y = s.S[d + 1][column] * fast_exp2(G.y),
            z = s.S[d + 2][column] * fast_exp2(G.z), w = s.S[d + 3][column] * fast_exp2(G.w);
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        const float4 k = at4(&s.k[j][d]);
        x += k.x * R[j], y += k.y * R[j], z += k.z * R[j], w += k.w * R[j];
      }
      s.S[d][column] = x, s.S[d + 1][column] = y, s.S[d + 2][column] = z, s.S[d + 3][column] = w;
    }
    __syncthreads();
  }
  for (int i = part; i < kDim; i += kParts) a.state_out[state + i * kDim + column] = s.S[i][column];
}

}  // namespace

cudaError_t step4_chunk(const Arguments& a, cudaStream_t stream) {
  return launch(chunk_kernel, dim3(a.heads), kThreads, sizeof(Shared), stream, a);
}

}  // namespace k3::learn::kda
