// What the L2 (sm_80) is told about lines: which will be read, which to give up first, which need not be written to
// memory at all.
#pragma once

#include "kernels/cuda/common/device.cuh"

namespace k3::cuda {

inline constexpr int kCacheLine = 128;  // bytes

#ifdef K3_CUDA_EMULATOR
inline void prefetch_l2(const void*) {}
inline void prefetch_l2_bulk(const void*, uint32_t) {}
inline uint64_t cache_policy(bool) { return 0; }
inline void store_streaming(uint4* p, uint4 value) { *p = value; }
inline void discard_line(void* p) { std::memset(p, 0xff, kCacheLine); }
#else
// Asks the L2 for the line of 128 bytes.
__device__ __forceinline__ void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global) : "memory");
}
// The same for a region; bytes: a multiple of 16, the address 16-byte aligned. Nothing before sm_90.
__device__ __forceinline__ void prefetch_l2_bulk(const void* global, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
#endif
}
// For copies with a policy. streaming: of what is used once, so that it gives way to the rest; otherwise as without
// one.
__device__ __forceinline__ uint64_t cache_policy(bool streaming) {
  uint64_t first, normal;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return streaming ? first : normal;
}
__device__ __forceinline__ void store_streaming(uint4* p, uint4 value) { __stcs(p, value); }
// The line at p has no value any more until it is written again: what the L2 holds of it is dropped. Everyone who reads
// or writes it has ended.
__device__ __forceinline__ void discard_line(void* p) {
  asm volatile("discard.global.L2 [%0], %1;" ::"l"(p), "n"(kCacheLine) : "memory");
}
#endif

}  // namespace k3::cuda
