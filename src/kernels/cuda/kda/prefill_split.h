// Few heads over many SMs: the chunks of a row in segments that run at the same time (kernels.md 3.1). A segment acts
// on its entry state affinely, S_out = M S_in + S~, so
//   pairs    of every segment but the last: S~, its scan from zero (the first one from the true state), and M, the same
//            scan over K columns, from the identity, with zero values
//   merge    S_in of segment j + 1 = M_j S_in of segment j + S~_j, one after the other
//   state    the ordinary kernel, every segment from its own entry state
// Rows of at most segment_chunks chunks are not split and take the ordinary path alone.
//
// Where gates forget, the end of a segment is enough: the steps are contractions, (I - beta k k^T) Diag(e^g) with
// |k| <= 1, 0 <= beta <= 1 and g <= 0, so once no entry of M over the last w chunks exceeds 2^-31 its Frobenius norm is
// below 2^-24, M S stays below 2^-24 |S| for every state S before these chunks, and S_out is their scan from zero. The
// pairs kernel takes w from the decays of the chunks, finds M of the w chunks, and walks the whole segment only when it
// has not vanished.
// Bytes a token and head: pairs 776 of the chunks it walks, state 1160 + 512.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k3::cuda::kda::prefill_detail {

inline constexpr int kMostSegments = 64;
inline constexpr int kTransferBytes = 2 * 128 * 128 * 4;

struct Split {
  int segment_chunks = 0;     // of every segment but the last of a row
  int segments = 1;           // of the longest row; 1: nothing is split
  // [rows, segments, heads, key, value]: S_in; pairs leaves S~_j at j + 1 where it is all of it.
  float* entries = nullptr;
  // [rows, segments, heads] of kTransferBytes, where it has not: M as bf16 and the rest as bf16, each [key in][key out]
  // in four panels (prefill_blocks.cuh), key out in the inner pair; S~ as the threads hold it, [half of the values][a
  // quarter of 64][thread][4].
  unsigned char* transfers = nullptr;
  int* vanished = nullptr;    // [rows, segments, heads]: 1 where the entry state of segment j + 1 is S~_j alone
  // Of a segment in [rows, segments, heads].
  constexpr std::int64_t place(int row, int segment, int heads, int head) const {
    return (static_cast<std::int64_t>(row) * segments + segment) * heads + head;
  }
};

std::size_t split_bytes(int segments, int rows, int heads);
Split place_split(std::int64_t chunks, int segments, int rows, int heads, void* memory);

}  // namespace k3::cuda::kda::prefill_detail
