// Step 3, loads in flight: the arithmetic of step 2, fed from a ring in shared memory by asynchronous copies (cp.async)
// that were started 24 tokens earlier. The four warps of a block share what they fetch.
// Layout of a token in the ring: q, k [128] bf16, g [128] fp32, v [32] bf16 of the block's columns, 1088 bytes; a stage
// is 8 tokens, the ring 4 stages: three on their way, one in use. One barrier every 8 tokens. beta, 4 bytes a token,
// waits in a register of lane t % 8 for its turn.
// Bytes a token and head: 1540 from memory; the 4 blocks of a head ask for q, k and g each, mostly from the L2.
// Operations as in step 2.
// Limited by the arithmetic: 128 FMA and about 90 other instructions a warp and token, and the chain
// decay -> sums -> shuffles -> u -> update that the next token waits for. 5.6 ms at T 8192 H 96, 0.69 us a token, of
// which three warps a scheduler need about half to issue. Faster loads do not help: T tokens take T times that chain.
// Next: handle many tokens at once. The chain between chunks stays, the work inside a chunk becomes matrix products.
#include "register_state.cuh"

namespace k3::learn::kda {
namespace {

using namespace k3::cuda;

constexpr int kStage = 8, kStages = 4;  // tokens; stages
constexpr int kQ = 0, kK = 256, kG = 512, kV = 1024, kTokenBytes = kV + 2 * kBlockColumns, kPieces = kTokenBytes / 16;

__global__ void __launch_bounds__(32 * kWarps) prefetch_kernel(const __grid_constant__ Arguments a) {
  unsigned char* ring = shared_memory<unsigned char>();
  const int head = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32,
            block_column0 = blockIdx.x * kBlockColumns, column0 = block_column0 + warp * kColumns,
            own = WarpColumns::own_column();
  const std::int64_t state = static_cast<std::int64_t>(head) * kDim * kDim;
  const auto fetch = [&](int stage) {
    for (int i = threadIdx.x; i < kStage * kPieces; i += 32 * kWarps) {
      const int token = stage * kStage + i / kPieces, at = i % kPieces * 16;
      if (token >= a.tokens) continue;
      const std::int64_t first = (static_cast<std::int64_t>(token) * a.heads + head) * kDim;
      const void* from = at < kK   ? static_cast<const void*>(a.q + first + at / 2)
                         : at < kG ? static_cast<const void*>(a.k + first + (at - kK) / 2)
                         : at < kV ? static_cast<const void*>(a.g + first + (at - kG) / 4)
                                   : static_cast<const void*>(a.v + first + block_column0 + (at - kV) / 2);
      copy_async_16(ring + (stage % kStages * kStage + i / kPieces) * kTokenBytes + at, from);
    }
    copy_async_commit();
  };
  const auto beta_of = [&](int stage) {  // lane l keeps that of token l % 8
    const int token = stage * kStage + lane % kStage;
    return token < a.tokens ? a.beta[static_cast<std::int64_t>(token) * a.heads + head] : 0.f;
  };
  for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage);
  float beta_next = beta_of(0);
  WarpColumns columns;
  columns.each(column0, [&](float& x, int offset) { x = a.state_in[state + offset]; });
  for (int stage = 0; stage * kStage < a.tokens; ++stage) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // this stage is here, and nobody reads the one before
    fetch(stage + kStages - 1);
    const float betas = beta_next;
    beta_next = beta_of(stage + 1);
#pragma unroll 1
    for (int i = 0; i < min(kStage, a.tokens - stage * kStage); ++i) {
      const unsigned char* in = ring + (stage % kStages * kStage + i) * kTokenBytes;
      const float o = columns.advance(load4(reinterpret_cast<const __nv_bfloat16*>(in + kQ) + 4 * lane),
                                      load4(reinterpret_cast<const __nv_bfloat16*>(in + kK) + 4 * lane),
                                      load4(reinterpret_cast<const float*>(in + kG) + 4 * lane),
                                      load1(reinterpret_cast<const __nv_bfloat16*>(in + kV) + warp * kColumns + own),
                                      shuffle(betas, i));
      const std::int64_t row = static_cast<std::int64_t>(stage * kStage + i) * a.heads + head;
      if (lane >= 16 && lane % 2 == 0) store1(a.o + row * kDim + column0 + own, a.scale * o);
    }
  }
  columns.each(column0, [&](float& x, int offset) { a.state_out[state + offset] = x; });
}

}  // namespace

cudaError_t step3_prefetch(const Arguments& a, cudaStream_t stream) {
  return launch(prefetch_kernel, dim3(kDim / kBlockColumns, a.heads), 32 * kWarps, kStages * kStage * kTokenBytes,
                stream, a);
}

}  // namespace k3::learn::kda
