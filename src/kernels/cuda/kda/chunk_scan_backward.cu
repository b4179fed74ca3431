// Step 4 of kda.h: the recurrence of the state's gradient, chunks in reverse. Blocks as in the forward scan: one of
// four warps per sequence, head and 32 value columns, gradient in registers, a copy in shared memory.
//   dR = A^T dO + Kb dS;    dS <- e^(G_C) dS + Qd^T dO - W^T dR
// dS before the step (the gradient of the state that leaves the chunk) and dR go to memory for step 5.
#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/cuda/kda/chunk_tiles.cuh"

namespace k3::cuda::kda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32, kBlock = kValueBlock;
constexpr int kAcrossPitch = kBlock + 8;
constexpr int kOutputPieces = kChunk * kBlock / 4 / kThreads;  // groups of four dO a thread brings in

template <int kDim>
struct Shared {
  float restored_keys[kChunk * (kDim + 4)];
  float scores[kChunk * kAcrossPitch];
  float decayed_queries[kChunk * (kDim + 8)];
  float weighted_keys[kChunk * (kDim + 8)];
  float d_output[kChunk * kAcrossPitch];
  float d_residuals[kChunk * kAcrossPitch];
  float d_state[kDim * kAcrossPitch];
  float chunk_decay[kDim];
};

template <int kDim>
__device__ __forceinline__ void fetch_first(Shared<kDim>& s, const ChunkWorkspace& w, std::int64_t tile) {
  copy_tile<kChunk, kDim, kDim + 4, kThreads>(s.restored_keys, w.restored_keys + tile * kChunk * kDim, kDim);
  copy_tile<kChunk, kChunk, kAcrossPitch, kThreads>(s.scores, w.scores + tile * kChunk * kChunk, kChunk);
}
template <int kDim>
__device__ __forceinline__ void fetch_second(Shared<kDim>& s, const ChunkWorkspace& w, std::int64_t tile) {
  copy_tile<kChunk, kDim, kDim + 8, kThreads>(s.decayed_queries, w.decayed_queries + tile * kChunk * kDim, kDim);
  copy_tile<kChunk, kDim, kDim + 8, kThreads>(s.weighted_keys, w.weighted_keys + tile * kChunk * kDim, kDim);
  copy_tile<1, kDim, kDim, kThreads>(s.chunk_decay, w.chunk_decay + tile * kDim, kDim);
}

template <int kDim, class E>
__global__ void __launch_bounds__(kThreads)
    scan_backward_kernel(BackwardArguments a, ChunkWorkspace w, BackwardWorkspace gradients) {
  constexpr bool kExact = std::is_same_v<E, float>;
  constexpr int kWarpRows = kDim / 16 < kWarps ? kDim / 16 : kWarps, kWarpColumns = kWarps / kWarpRows;
  constexpr int kStateRows = kDim / kWarpRows, kStateColumns = kBlock / kWarpColumns;
  Shared<kDim>& s = *shared_memory<Shared<kDim>>();
  const ForwardInputs& in = a.inputs;
  const int sequence = blockIdx.x, head = blockIdx.y, column0 = blockIdx.z * kBlock, warp = threadIdx.x / 32;
  const int state_row0 = warp % kWarpRows * kStateRows, state_column0 = warp / kWarpRows * kStateColumns;
  const int first_chunk = w.chunk_starts[sequence], chunks = w.chunk_starts[sequence + 1] - first_chunk;
  const int heads = in.shape.heads;
  const auto tile_of = [&](int chunk) { return static_cast<std::int64_t>(first_chunk + chunk) * heads + head; };

  WarpTile<kStateRows / 16, kStateColumns / 8> d_state;
  const auto each_state = [&](auto visit) {
    d_state.each_pair(
        [&](int row, int column, float& x, float& y) { visit(state_row0 + row, state_column0 + column, x, y); });
  };
  const std::int64_t state_at = (static_cast<std::int64_t>(sequence) * heads + head) * kDim * kDim + column0;
  each_state([&](int row, int column, float& x, float& y) {
    const float2 start = a.d_final_state
                             ? *reinterpret_cast<const float2*>(a.d_final_state + state_at + row * kDim + column)
                             : make_float2(0.f, 0.f);
    x = start.x;
    y = start.y;
    *reinterpret_cast<float2*>(s.d_state + row * kAcrossPitch + column) = start;
  });

  float4 next_output[kOutputPieces];
  const auto load_output = [&](int chunk) {  // to registers; zeros beyond the sequence
    const std::int64_t token = static_cast<std::int64_t>(in.starts[sequence]) + chunk * kChunk;
#pragma unroll
    for (int i = 0; i < kOutputPieces; ++i) {
      const int piece = threadIdx.x + i * kThreads, row = piece / (kBlock / 4),
                column = column0 + piece % (kBlock / 4) * 4;
      next_output[i] = make_float4(0.f, 0.f, 0.f, 0.f);
      if (token + row >= in.starts[sequence + 1]) continue;
      next_output[i] = a.output_type == Type::fp32
                           ? load4(row_pointer<float>(a.d_o, token + row, head) + column)
                           : load4(row_pointer<__nv_bfloat16>(a.d_o, token + row, head) + column);
    }
  };
  if (chunks > 0) {
    fetch_first(s, w, tile_of(chunks - 1));
    load_output(chunks - 1);
  }
  copy_async_commit();
  if (chunks > 0) fetch_second(s, w, tile_of(chunks - 1));
  copy_async_commit();
  for (int chunk = chunks - 1; chunk >= 0; --chunk) {
    const std::int64_t tile = tile_of(chunk);
#pragma unroll
    for (int i = 0; i < kOutputPieces; ++i) {
      const int piece = threadIdx.x + i * kThreads;
      *reinterpret_cast<float4*>(s.d_output + piece / (kBlock / 4) * kAcrossPitch + piece % (kBlock / 4) * 4) =
          next_output[i];
    }
    each_state([&](int row, int column, float x, float y) {
      store2(gradients.d_states + tile * kDim * kDim + row * kDim + column0 + column, x, y);
    });
    copy_async_wait<1>();  // Kb, A
    __syncthreads();
    WarpTile<2, 1> d_residuals;  // columns 8 warp ..
    d_residuals.clear();
    multiply<kDim, kExact>(
        d_residuals, [&](int row, int key) { return s.restored_keys[row * (kDim + 4) + key]; },
        [&](int key, int column) { return s.d_state[key * kAcrossPitch + 8 * warp + column]; });
    multiply<kChunk, kExact>(
        d_residuals, [&](int row, int i) { return s.scores[i * kAcrossPitch + row]; },
        [&](int i, int column) { return s.d_output[i * kAcrossPitch + 8 * warp + column]; });
    d_residuals.each_pair([&](int row, int column, float x, float y) {
      column += 8 * warp;
      *reinterpret_cast<float2*>(s.d_residuals + row * kAcrossPitch + column) = make_float2(x, y);
      store2(gradients.d_residuals + tile * kChunk * kDim + row * kDim + column0 + column, x, y);
    });
    copy_async_wait<0>();  // Qd, W, decay
    __syncthreads();
    if (chunk > 0) {
      fetch_first(s, w, tile_of(chunk - 1));
      load_output(chunk - 1);
    }
    copy_async_commit();

    each_state([&](int row, int, float& x, float& y) { x *= s.chunk_decay[row], y *= s.chunk_decay[row]; });
    multiply<kChunk, kExact>(
        d_state, [&](int key, int row) { return s.decayed_queries[row * (kDim + 8) + state_row0 + key]; },
        [&](int row, int column) { return s.d_output[row * kAcrossPitch + state_column0 + column]; });
    multiply<kChunk, kExact>(
        d_state, [&](int key, int row) { return -s.weighted_keys[row * (kDim + 8) + state_row0 + key]; },
        [&](int row, int column) { return s.d_residuals[row * kAcrossPitch + state_column0 + column]; });
    each_state([&](int row, int column, float x, float y) {
      *reinterpret_cast<float2*>(s.d_state + row * kAcrossPitch + column) = make_float2(x, y);
    });
    __syncthreads();
    if (chunk > 0) fetch_second(s, w, tile_of(chunk - 1));
    copy_async_commit();
  }
  if (a.d_initial_state)
    each_state([&](int row, int column, float x, float y) {
      store2(a.d_initial_state + state_at + row * kDim + column, x, y);
    });
}

}  // namespace

cudaError_t launch_scan_backward(const BackwardArguments& a, const ChunkWorkspace& workspace,
                                 const BackwardWorkspace& gradients, cudaStream_t stream) {
  const Shape& shape = a.inputs.shape;
  return dispatch(shape.dim, a.inputs.type, [&]<int kDim, class E>() {
    return launch(scan_backward_kernel<kDim, E>, dim3(shape.sequences, shape.heads, kDim / kBlock), kThreads,
                  sizeof(Shared<kDim>), stream, a, workspace, gradients);
  });
}

}  // namespace k3::cuda::kda
