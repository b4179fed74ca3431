// Steps shared by the chunk kernels: bringing the rows of a chunk into shared memory, the running sum of the log
// decay, and copies of whole tiles.
#pragma once

#include "kernels/cuda/kda/chunk_workspace.cuh"

namespace k3::cuda::kda {

inline constexpr float kLog2E = 1.4426950408889634f;  // decays are powers of two inside the kernels

template <class E>
__device__ __forceinline__ const E* row_pointer(const Rows& rows, std::int64_t token, int head) {
  return static_cast<const E*>(rows.data) + token * rows.token_stride + head * rows.head_stride;
}
template <class E>
__device__ __forceinline__ E* row_pointer(const MutableRows& rows, std::int64_t token, int head) {
  return static_cast<E*>(rows.data) + token * rows.token_stride + head * rows.head_stride;
}

// Walks down one column of a head, `step` tokens at a time.
template <class E>
struct Column {
  E* at;
  std::int64_t stride;
  template <class AnyRows>
  __device__ __forceinline__ Column(const AnyRows& rows, std::int64_t token, int head, int column, int step = 1)
      : at(row_pointer<std::remove_const_t<E>>(rows, token, head) + column), stride(step * rows.token_stride) {}
  __device__ __forceinline__ E* next() {
    E* const here = at;
    at += stride;
    return here;
  }
};

// tile[row * kPitch + column] = source[first_token + row][head][first_column + column] for kColumns columns; zeros
// beyond place.rows.
template <class E, int kColumns, int kPitch, int kThreads>
__device__ __forceinline__ void load_rows(float* tile, const Rows& source, const ChunkPlace& place, int head,
                                          int first_column) {
  constexpr int kPieces = kColumns / 4;
  for (int i = threadIdx.x; i < kChunk * kPieces; i += kThreads) {
    const int row = i / kPieces, column = i % kPieces * 4;
    float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
    if (row < place.rows) x = load4(row_pointer<E>(source, place.first_token + row, head) + first_column + column);
    *reinterpret_cast<float4*>(tile + row * kPitch + column) = x;
  }
}

// Turns a tile of g into its running sum down the rows, in units of log 2. Rows beyond the sequence hold g = 0 and
// repeat the last sum.
template <int kColumns, int kPitch, int kThreads>
__device__ __forceinline__ void accumulate_decay(float* tile) {
  for (int column = threadIdx.x; column < kColumns; column += kThreads) {
    float sum = 0.f;
#pragma unroll
    for (int row = 0; row < kChunk; ++row) {
      sum += tile[row * kPitch + column] * kLog2E;
      tile[row * kPitch + column] = sum;
    }
  }
}

// Asynchronous copy of kRows rows of kColumns floats (source pitch in floats) into a padded tile; the caller commits
// and waits.
template <int kRows, int kColumns, int kPitch, int kThreads>
__device__ __forceinline__ void copy_tile(float* tile, const float* source, int source_pitch) {
  constexpr int kPieces = kColumns / 4;
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces, column = i % kPieces * 4;
    copy_async_16(tile + row * kPitch + column, source + row * source_pitch + column);
  }
}

}  // namespace k3::cuda::kda
