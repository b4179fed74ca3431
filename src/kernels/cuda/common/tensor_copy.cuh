// Copies of boxes of rows by the copy engine (sm_90): 4 * groups tokens of one head of a [tokens, heads, 128] bf16
// tensor with any strides (multiples of 16 bytes), into panels [4][groups][64] in shared memory: the first tokens of
// all groups of four, then the second ones, ... Panels are 128-byte aligned and have the 128-byte swizzle: bits 4 to 6
// of an address are exchanged by its bits 7 to 9. The length is not known to the map: boxes must lie inside the tensor.
#pragma once

#include <cuda.h>

#include "kernels/cuda/common/mbarrier.cuh"

namespace k3::cuda {

// Where 16-byte piece `piece` of the 128-byte row at `row` lies, relative to the row.
__device__ __forceinline__ uint32_t swizzled_piece(uint32_t row, uint32_t piece) {
  return (piece ^ (row >> 7 & 7)) << 4;
}

#ifdef K3_CUDA_EMULATOR
struct HeadMap {
  const unsigned char* data;
  std::int64_t token_bytes, head_bytes;
  int groups;
};
inline cudaError_t make_head_map(HeadMap& map, const void* data, std::int64_t token_bytes, std::int64_t head_bytes,
                                 int /*heads*/, int groups) {
  map = {static_cast<const unsigned char*>(data), token_bytes, head_bytes, groups};
  return cudaSuccess;
}
inline void copy_head_in(uint32_t shared, const HeadMap& map, int panel, int head, int token, uint32_t barrier,
                         uint64_t /*policy*/) {
  if (token < 0) std::printf("a box before the tensor\n"), std::abort();
  for (int row = 0; row < 4 * map.groups; ++row)
    for (uint32_t piece = 0; piece < 8; ++piece) {
      const int from = token + row % map.groups * 4 + row / map.groups;
      const uint32_t place = shared + row * 128, to = place + swizzled_piece(place, piece);
      std::memcpy(shared_at(to), map.data + from * map.token_bytes + head * map.head_bytes + 128 * panel + 16 * piece,
                  16);
    }
  emulator::block->barriers.at(barrier).bytes -= map.groups * 4 * 128;
  emulator::block->barriers.at(barrier).settle();
}
inline void prefetch_head(const HeadMap&, int, int, int) {}
#else
struct HeadMap {
  CUtensorMap map;
};
inline cudaError_t make_head_map(HeadMap& map, const void* data, std::int64_t token_bytes, std::int64_t head_bytes,
                                 int heads, int groups) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  if (!encode) return cudaErrorNotSupported;
  constexpr cuuint64_t kTokens = cuuint64_t{1} << 28;  // more than memory holds
  // Groups overlap: the fourth coordinate is the box's first token.
  const cuuint64_t size[4] = {128, static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(groups), kTokens},
                   stride[3] = {static_cast<cuuint64_t>(head_bytes), static_cast<cuuint64_t>(4 * token_bytes),
                                static_cast<cuuint64_t>(token_bytes)};
  const cuuint32_t box[4] = {64, 1, static_cast<cuuint32_t>(groups), 4}, step[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(data), size, stride, box, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
// One panel. The map lies in a kernel's parameters (__grid_constant__). Reports 128 bytes a row to the barrier.
// policy: cache_policy() in cache_hints.cuh.
__device__ __forceinline__ void copy_head_in(uint32_t shared, const HeadMap& map, int panel, int head, int token,
                                             uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(64 * panel), "r"(head), "r"(0), "r"(token), "l"(policy)
      : "memory");
}
// Asks the L2 for the rows of one panel.
__device__ __forceinline__ void prefetch_head(const HeadMap& map, int panel, int head, int token) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(64 * panel),
               "r"(head), "r"(0), "r"(token)
               : "memory");
}
#endif

}  // namespace k3::cuda
