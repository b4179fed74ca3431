// Where the plain chunk kernels keep their intermediate tiles, and which tokens a chunk covers. A tile is one chunk of
// one head, kChunk full rows (rows beyond the end of the sequence hold zeros), contiguous: tile = chunk * heads + head.
#pragma once

#include "kernels/cuda/common/device.cuh"
#include "kernels/cuda/kda/dispatch.h"
#include "kernels/cuda/kda/kda.h"

namespace k3::cuda::kda {

inline constexpr int kChunk = 32;       // tokens; 64 KB of state a chunk and head at dim 128 against 64 KB of operands
inline constexpr int kValueBlock = 32;  // value columns of one scan block: 128 bytes a row

struct ChunkWorkspace {
  int* chunk_starts;       // [sequences + 1] first chunk of each sequence
  float* weighted_keys;    // W   [tiles, kChunk, dim]
  float* weighted_values;  // U   [tiles, kChunk, dim]
  float* restored_keys;    // Kb  [tiles, kChunk, dim]  k e^(G_C - G)
  float* decayed_queries;  // Qd  [tiles, kChunk, dim]  scale q e^G
  float* scores;           // A   [tiles, kChunk, kChunk]
  float* inverse;          // T   [tiles, kChunk, kChunk]
  float* chunk_decay;      // e^(G_C)  [tiles, dim]
  float* states;           // S at the start of the chunk     [tiles, dim, dim]     kept for backward only
  float* residuals;        // R   [tiles, kChunk, dim]                              kept for backward only
};
struct BackwardWorkspace {
  float* d_states;     // dS at the end of the chunk  [tiles, dim, dim]
  float* d_residuals;  // dR  [tiles, kChunk, dim]
};

// Hands out parts of a workspace, 256-byte aligned; base null: only counts.
class Layout {
 public:
  explicit Layout(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  void add(T*& pointer, std::int64_t count) {
    pointer = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  char* base_;
  std::size_t bytes_ = 0;
};

// An upper bound that needs no look at the lengths: every sequence adds at most one partial chunk.
__host__ __device__ inline std::int64_t max_chunks(const Shape& shape) {
  return shape.tokens / kChunk + shape.sequences;
}

// Lays the buffers out from `base` (null to only measure); returns the bytes used.
std::size_t place(ChunkWorkspace& workspace, const Shape& shape, Keep keep, void* base);
std::size_t place(BackwardWorkspace& workspace, const Shape& shape, void* base);

struct alignas(16) ChunkPlace {
  std::int64_t first_token;
  int sequence;
  int rows;  // 1 .. tokens of a chunk; 0: no such chunk
};
// False when `chunk` lies beyond the last one.
template <int kTokens = kChunk>
__device__ __forceinline__ bool find_chunk(int chunk, const int* chunk_starts, const int* starts, int sequences,
                                           ChunkPlace& place) {
  if (chunk >= chunk_starts[sequences]) return false;
  int low = 0, high = sequences - 1;  // the last sequence that starts at or before the chunk
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (chunk_starts[middle] <= chunk) low = middle;
    else high = middle - 1;
  }
  const int offset = (chunk - chunk_starts[low]) * kTokens, length = starts[low + 1] - starts[low];
  place = {static_cast<std::int64_t>(starts[low]) + offset, low, min(kTokens, length - offset)};
  return true;
}

// The five steps of kda.h; each launches one kernel.
// `places` [place_count], null: not wanted, are those of find_chunk for chunks of 64 tokens.
cudaError_t launch_plan(const ForwardInputs& inputs, int chunk_tokens, int* chunk_starts, ChunkPlace* places,
                        std::int64_t place_count, cudaStream_t stream);
cudaError_t launch_factors(const ForwardInputs& inputs, const ChunkWorkspace& workspace, cudaStream_t stream);
// `outputs` null: only states and residuals (the recomputation of backward).
cudaError_t launch_scan(const ForwardInputs& inputs, const ForwardOutputs* outputs, const ChunkWorkspace& workspace,
                        cudaStream_t stream);
cudaError_t launch_scan_backward(const BackwardArguments& arguments, const ChunkWorkspace& workspace,
                                 const BackwardWorkspace& gradients, cudaStream_t stream);
cudaError_t launch_gradients(const BackwardArguments& arguments, const ChunkWorkspace& workspace,
                             const BackwardWorkspace& gradients, cudaStream_t stream);

}  // namespace k3::cuda::kda
