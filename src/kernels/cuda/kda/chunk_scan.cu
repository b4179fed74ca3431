// Step 3 of kda.h: the recurrence over chunks. One block of four warps per sequence, head and 32 value columns; the
// state lives in registers (fp32 sums of the tensor cores), a copy in shared memory serves as operand.
//   R = U - W S;   O = Qd S + A R;   S <- e^(G_C) S + Kb^T R
// Per chunk two products separated by two barriers. Operands arrive by asynchronous copies, one buffer each: W, Qd, U
// are refilled while the second product runs, Kb, A and the decay while the first product of the next chunk runs.
#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/cuda/kda/chunk_tiles.cuh"

namespace k3::cuda::kda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32, kBlock = kValueBlock;
constexpr int kAcrossPitch = kBlock + 8;  // tiles of 32 columns read across the contraction index

template <int kDim>
struct Shared {
  float w_and_q[2 * kChunk * (kDim + 4)];  // W above Qd: one product serves R and O
  float restored_keys[kChunk * (kDim + 8)];
  float values[kChunk * kAcrossPitch];
  float scores[kChunk * (kChunk + 4)];
  float residuals[kChunk * kAcrossPitch];
  float state[kDim * kAcrossPitch];
  float chunk_decay[kDim];
};

template <int kDim>
__device__ __forceinline__ void fetch_first(Shared<kDim>& s, const ChunkWorkspace& w, std::int64_t tile, int column0) {
  const std::int64_t rows = tile * kChunk * kDim;
  copy_tile<kChunk, kDim, kDim + 4, kThreads>(s.w_and_q, w.weighted_keys + rows, kDim);
  copy_tile<kChunk, kDim, kDim + 4, kThreads>(s.w_and_q + kChunk * (kDim + 4), w.decayed_queries + rows, kDim);
  copy_tile<kChunk, kBlock, kAcrossPitch, kThreads>(s.values, w.weighted_values + rows + column0, kDim);
}
template <int kDim>
__device__ __forceinline__ void fetch_second(Shared<kDim>& s, const ChunkWorkspace& w, std::int64_t tile) {
  copy_tile<kChunk, kDim, kDim + 8, kThreads>(s.restored_keys, w.restored_keys + tile * kChunk * kDim, kDim);
  copy_tile<kChunk, kChunk, kChunk + 4, kThreads>(s.scores, w.scores + tile * kChunk * kChunk, kChunk);
  copy_tile<1, kDim, kDim, kThreads>(s.chunk_decay, w.chunk_decay + tile * kDim, kDim);
}

template <int kDim, class E>
__global__ void __launch_bounds__(kThreads) scan_kernel(ForwardInputs in, ForwardOutputs out, ChunkWorkspace w) {
  constexpr bool kExact = std::is_same_v<E, float>;
  // The warps tile the state [kDim, kBlock]: kWarpRows of them over the keys, the others over the values.
  constexpr int kWarpRows = kDim / 16 < kWarps ? kDim / 16 : kWarps, kWarpColumns = kWarps / kWarpRows;
  constexpr int kStateRows = kDim / kWarpRows, kStateColumns = kBlock / kWarpColumns;
  Shared<kDim>& s = *shared_memory<Shared<kDim>>();
  const int sequence = blockIdx.x, head = blockIdx.y, column0 = blockIdx.z * kBlock, warp = threadIdx.x / 32;
  const int state_row0 = warp % kWarpRows * kStateRows, state_column0 = warp / kWarpRows * kStateColumns;
  const int first_chunk = w.chunk_starts[sequence], chunks = w.chunk_starts[sequence + 1] - first_chunk;
  const int heads = in.shape.heads;
  const auto tile_of = [&](int chunk) { return static_cast<std::int64_t>(first_chunk + chunk) * heads + head; };

  WarpTile<kStateRows / 16, kStateColumns / 8> state;
  const auto each_state = [&](auto visit) {  // visit(key channel, value column of the block, x, y)
    state.each_pair(
        [&](int row, int column, float& x, float& y) { visit(state_row0 + row, state_column0 + column, x, y); });
  };
  const std::int64_t state_at = (static_cast<std::int64_t>(sequence) * heads + head) * kDim * kDim + column0;
  each_state([&](int row, int column, float& x, float& y) {
    const float2 start = in.initial_state
                             ? *reinterpret_cast<const float2*>(in.initial_state + state_at + row * kDim + column)
                             : make_float2(0.f, 0.f);
    x = start.x;
    y = start.y;
    *reinterpret_cast<float2*>(s.state + row * kAcrossPitch + column) = start;
  });

  if (chunks > 0) fetch_first(s, w, tile_of(0), column0);
  copy_async_commit();
  if (chunks > 0) fetch_second(s, w, tile_of(0));
  copy_async_commit();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t tile = tile_of(chunk);
    const std::int64_t token = static_cast<std::int64_t>(in.starts[sequence]) + chunk * kChunk;
    const int rows = static_cast<int>(min(static_cast<std::int64_t>(kChunk), in.starts[sequence + 1] - token));
    if (w.states)
      each_state([&](int row, int column, float& x, float& y) {
        store2(w.states + tile * kDim * kDim + row * kDim + column0 + column, x, y);
      });
    copy_async_wait<1>();    // W, Qd, U
    __syncthreads();         // and the shared copy of the state is complete
    WarpTile<4, 1> product;  // rows 0-31: W S, rows 32-63: Qd S; columns 8 warp ..
    product.clear();
    multiply<kDim, kExact>(
        product, [&](int row, int key) { return s.w_and_q[row * (kDim + 4) + key]; },
        [&](int key, int column) { return s.state[key * kAcrossPitch + 8 * warp + column]; });
    product.each_pair([&](int row, int column, float& x, float& y) {
      if (row >= kChunk) return;
      column += 8 * warp;
      const float2 u = *reinterpret_cast<float2*>(s.values + row * kAcrossPitch + column);
      const float2 r = make_float2(u.x - x, u.y - y);
      *reinterpret_cast<float2*>(s.residuals + row * kAcrossPitch + column) = r;
      if (w.residuals) store2(w.residuals + tile * kChunk * kDim + row * kDim + column0 + column, r.x, r.y);
    });
    copy_async_wait<0>();  // Kb, A, decay (fetched during the first product)
    __syncthreads();       // R complete; W, Qd, U free
    if (chunk + 1 < chunks) fetch_first(s, w, tile_of(chunk + 1), column0);
    copy_async_commit();

    each_state([&](int row, int, float& x, float& y) { x *= s.chunk_decay[row], y *= s.chunk_decay[row]; });
    multiply<kChunk, kExact>(
        state, [&](int key, int token_row) { return s.restored_keys[token_row * (kDim + 8) + state_row0 + key]; },
        [&](int token_row, int column) { return s.residuals[token_row * kAcrossPitch + state_column0 + column]; });
    each_state([&](int row, int column, float& x, float& y) {
      *reinterpret_cast<float2*>(s.state + row * kAcrossPitch + column) = make_float2(x, y);
    });
    if (out.o.data) {
      WarpTile<2, 1> o;
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) o.value[m][0][e] = product.value[m + 2][0][e];
      multiply<kChunk, kExact>(
          o, [&](int row, int j) { return s.scores[row * (kChunk + 4) + j]; },
          [&](int j, int column) { return s.residuals[j * kAcrossPitch + 8 * warp + column]; });
      o.each_pair([&](int row, int column, float x, float y) {
        if (row >= rows) return;
        column += column0 + 8 * warp;
        if (out.type == Type::fp32) store2(row_pointer<float>(out.o, token + row, head) + column, x, y);
        else store2(row_pointer<__nv_bfloat16>(out.o, token + row, head) + column, x, y);
      });
    }
    __syncthreads();  // Kb, A, decay, R free
    if (chunk + 1 < chunks) fetch_second(s, w, tile_of(chunk + 1));
    copy_async_commit();
  }
  if (out.final_state)
    each_state(
        [&](int row, int column, float x, float y) { store2(out.final_state + state_at + row * kDim + column, x, y); });
}

}  // namespace

cudaError_t launch_scan(const ForwardInputs& in, const ForwardOutputs* outputs, const ChunkWorkspace& workspace,
                        cudaStream_t stream) {
  return dispatch(in.shape.dim, in.type, [&]<int kDim, class E>() {
    return launch(scan_kernel<kDim, E>, dim3(in.shape.sequences, in.shape.heads, kDim / kBlock), kThreads,
                  sizeof(Shared<kDim>), stream, in, outputs ? *outputs : ForwardOutputs{}, workspace);
  });
}

}  // namespace k3::cuda::kda
