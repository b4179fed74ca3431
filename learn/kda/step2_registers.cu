// Step 2, the state in registers: a warp owns 8 value columns and needs no other warp (register_state.cuh). The columns
// of the state do not know of each other; the keys are spread over the lanes, so the sums over them are shuffles.
//   D = e^g (.) S;   u = beta (v - D^T k);   o = scale (D^T q + (k . q) u);   S <- D + k u^T
// Bytes a token and head: 1540 from memory; the 16 warps of a head ask for q, k and g each, 16 KiB from L1 and L2.
// Operations: 7 x 128 x 128 and, a warp, 30 shuffles and 4 exponentials a lane.
// Limited by latency: a token starts with its loads, and only when they have come does the arithmetic begin. 12 warps a
// multiprocessor hide a part of it: 7.8 ms at T 8192 H 96, 0.95 us a token.
// Next: ask for the tokens to come before they are needed.
#include "register_state.cuh"

namespace k3::learn::kda {
namespace {

using namespace k3::cuda;

__global__ void __launch_bounds__(32 * kWarps) registers_kernel(const __grid_constant__ Arguments a) {
  const int head = blockIdx.y, lane = threadIdx.x % 32,
            column0 = (blockIdx.x * kWarps + threadIdx.x / 32) * kColumns;
  const std::int64_t state = static_cast<std::int64_t>(head) * kDim * kDim;
  WarpColumns columns;
  columns.each(column0, [&](float& x, int offset) { x = a.state_in[state + offset]; });
#pragma unroll 1
  for (int token = 0; token < a.tokens; ++token) {
    const std::int64_t row = static_cast<std::int64_t>(token) * a.heads + head, at = row * kDim + 4 * lane,
                       own = row * kDim + column0 + WarpColumns::own_column();
    const float o = columns.advance(load4(a.q + at), load4(a.k + at), load4(a.g + at), load1(a.v + own), a.beta[row]);
    if (lane >= 16 && lane % 2 == 0) store1(a.o + own, a.scale * o);
  }
  columns.each(column0, [&](float& x, int offset) { a.state_out[state + offset] = x; });
}

}  // namespace

cudaError_t step2_registers(const Arguments& a, cudaStream_t stream) {
  return launch(registers_kernel, dim3(kDim / kBlockColumns, a.heads), 32 * kWarps, 0, stream, a);
}

}  // namespace k3::learn::kda
