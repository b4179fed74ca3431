// Few heads over many SMs: the chunks of a row in segments that run at the same time (kernels.md 3.1). A segment acts
// on its entry state affinely, S_out = M S_in + S~, so
//   pairs    every segment but the last gives S~ (its scan from zero; the first one from the true state), every segment
//            but the first and the last M (the same scan over K columns, from the identity, with zero values)
//   merge    S_in of segment j + 1 = M_j S_in of segment j + S~_j, one after the other, fp32
//   state    the ordinary kernel, every segment from its own entry state
// Rows of at most segment_chunks chunks are not split and take the ordinary path alone.
//
// M is set to zero once no entry of it exceeds 2^-31: its Frobenius norm is then below 2^-24, and the steps behind are
// contractions, (I - beta k k^T) Diag(e^g) with |k| <= 1, 0 <= beta <= 1 and g <= 0, so M S_in stays below
// 2^-24 |S_in|. Gates that forget quickly end the scan of M after four chunks.
// Bytes a token and head: pairs 776 (S~; M finds the same blocks in the L2), state 1160 + 512.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k3::cuda::kda::prefill_detail {

inline constexpr int kMostSegments = 64;
inline constexpr int kTransferPitch = 136;  // floats; 8 mod 32: no bank conflicts once M lies in shared memory

struct Split {
  int segment_chunks = 0;     // of every segment but the last of a row
  int segments = 1;           // of the longest row; 1: nothing is split
  float* entries = nullptr;   // [rows, segments, heads, key, value]: S_in; pairs leaves S~_j at j + 1
  float* transfers = nullptr;  // [rows, segments, heads, key in, kTransferPitch]: M, key out inside a row
  int* vanished = nullptr;    // [rows, segments, heads, 2]: 1 where half the key-in columns of M are zero
};

std::size_t split_bytes(int segments, int rows, int heads);
Split place_split(std::int64_t chunks, int segments, int rows, int heads, void* memory);

}  // namespace k3::cuda::kda::prefill_detail
