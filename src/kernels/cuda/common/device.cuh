// The few device primitives the plain (sm_80 and newer) kernels use: typed loads of four values, tf32 tensor core
// product, asynchronous copies to shared memory, exp2, launch. tests/kernels_cuda/emulator.h gives the same names a
// meaning on a CPU
// (K3_CUDA_EMULATOR), so that
// these kernels run, slowly and exactly, on machines without a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#ifdef K3_CUDA_EMULATOR
#include "kernels_cuda/emulator.h"  // what stands below: tensor_core_tf32, copy_async_16, fast_exp2, ...
#else

namespace k3::cuda {

// d += a * b for one m16n8k8 tile; lane l owns a: rows l/4 (+8), columns l%4 (+4); b: rows l%4 (+4), column l/4; d:
// rows l/4 (+8), columns 2 (l%4) + {0, 1}.
__device__ __forceinline__ void tensor_core_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ float from_bits(uint32_t bits) { return __uint_as_float(bits); }
__device__ __forceinline__ uint32_t bits_of(float x) { return __float_as_uint(x); }

__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the newest kPending groups of this thread have landed.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// What the compiler may rely on.
__device__ __forceinline__ void assume(bool fact) { __builtin_assume(fact); }
// The same number, of which the compiler knows nothing: what follows from it is computed again instead of being kept in
// registers.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Bytes of (x, y), of x 0 to 3 and of y 4 to 7, as the four nibbles of `selector` say.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  return __byte_perm(x, y, selector);
}

// A barrier of kThreads threads of a block, whole warps; id 1 to 15. The second only arrives and goes on.
template <int kThreads>
__device__ __forceinline__ void named_barrier(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void named_barrier_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// A flag in memory, behind what the thread has written or knows to be written.
__device__ __forceinline__ void store_release(uint32_t* p, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
// A number as it lies in the L2: not one that was read before and kept.
__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
__device__ __forceinline__ float load_relaxed(const float* p) {
  float value;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(p) : "memory");
  return value;
}
__device__ __forceinline__ void sleep_nanoseconds(unsigned time) { __nanosleep(time); }
// At least this long (a sleep may take anything up to twice its time).
__device__ __forceinline__ void wait_nanoseconds(unsigned time) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    sleep_nanoseconds(100);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < time);
}
// Of a flag set in any way that promises it: what was written before is visible.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
// Adds to such a flag behind what the thread has written.
__device__ __forceinline__ void add_release(uint32_t* p, uint32_t x) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ int shuffle(int x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
// The lowest bit that is set, or 32.
__device__ __forceinline__ int find_first_bit(uint32_t bits) { return bits ? __ffs(static_cast<int>(bits)) - 1 : 32; }
// Bit i: whether lane i of the warp says yes.
__device__ __forceinline__ uint32_t ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }
__device__ __forceinline__ float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ float inverse_sqrt(float x) { return rsqrtf(x); }
__device__ __forceinline__ float fast_reciprocal(float x) { return __fdividef(1.f, x); }
// One instruction; subnormal arguments and results count as zero.
__device__ __forceinline__ float approximate_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float approximate_inverse_sqrt(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// d += a * b for one m16n8k16 tile of bf16 pairs; lane l owns a: rows l/4 (+8), pairs of columns 2 (l%4) (+8); b:
// pairs of rows 2 (l%4) (+8), column l/4.
__device__ __forceinline__ void tensor_core_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <class T>
__device__ __forceinline__ T* shared_memory() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

// The number of the multiprocessor that runs this thread.
__device__ __forceinline__ unsigned multiprocessor() {
  unsigned number;
  asm("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
}
// Of the current device; 0 on an error.
inline int multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return 0;
  return count;
}
// Its major and minor compute capability, as in sm_90.
inline int device_capability() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    return 0;
  return 10 * major + minor;
}

// Zeroes memory in the order of the stream.
inline cudaError_t clear_async(void* memory, size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(memory, 0, bytes, stream);
}

// Launches on the stream; raises the kernel's shared memory limit when it needs more than the default 48 KiB, and then
// asks for the largest share of the L1, so that as many blocks reside on a multiprocessor as the kernel counts on.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream,
                   Arguments&&... arguments) {
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
    const cudaError_t share_error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared);
    if (share_error != cudaSuccess) return share_error;
  }
  // clang-format off
  kernel<<<grid, threads, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  // clang-format on
  return cudaGetLastError();
}

}  // namespace k3::cuda
#endif

namespace k3::cuda {

// Scalar functions of fp32, accurate to a few units in the last place.
__device__ __forceinline__ float fast_exp(float x) { return fast_exp2(x * 1.4426950408889634f); }
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + fast_exp(-x)); }
__device__ __forceinline__ float fast_sigmoid(float x) { return fast_reciprocal(1.f + fast_exp(-x)); }
__device__ __forceinline__ float softplus(float x) { return x > 20.f ? x : log1pf(fast_exp(x)); }
// x sigmoid(x) from h = x / 2, as h + h tanh h with one special function. Over all fp32 numbers (sm_90) the absolute
// error is at most 1.1e-5, the relative one 1.4e-4 from x = -7 on (test silu-sweep).
__device__ __forceinline__ float silu_of_half(float h) { return fmaf(h, fast_tanh(h), h); }

// One value, widened to fp32 or rounded to the element type E (float or bf16).
template <class E>
__device__ __forceinline__ float load1(const E* p) {
  if constexpr (std::is_same_v<E, float>) return *p;
  else return __bfloat162float(*p);
}
template <class E>
__device__ __forceinline__ float round_to(float x) {
  if constexpr (std::is_same_v<E, float>) return x;
  else return __bfloat162float(__float2bfloat16(x));
}

// Two bf16 values in one word, the first in the low half.
__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ float2 both(uint32_t pair) {
  return make_float2(from_bits(pair << 16), from_bits(pair & 0xffff0000u));
}
// Two numbers as two bf16 terms each.
struct SplitPair {
  uint32_t high, low;
  __device__ __forceinline__ SplitPair(float x, float y) {
    high = bf16_pair(x, y);
    const float2 rounded = both(high);
    low = bf16_pair(x - rounded.x, y - rounded.y);
  }
};

// Sums over the two lanes that differ in the bit `step`: of 2 width values the lane with the bit keeps the upper half,
// the other one the lower half, both in the first places.
template <int kCount>
__device__ __forceinline__ void fold_lanes(float (&x)[kCount], int width, int lane, int step) {
  const bool upper = lane & step;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float kept = upper ? x[i + width] : x[i], sent = upper ? x[i] : x[i + width];
    x[i] = kept + shuffle_xor(sent, step);
  }
}

// Four neighbouring values, widened to fp32 or rounded to the element type E (float or bf16).
template <class E>
__device__ __forceinline__ float4 load4(const E* p) {
  if constexpr (std::is_same_v<E, float>) {
    return *reinterpret_cast<const float4*>(p);
  } else {
    const uint2 bits = *reinterpret_cast<const uint2*>(p);
    return make_float4(from_bits(bits.x << 16), from_bits(bits.x & 0xffff0000u), from_bits(bits.y << 16),
                       from_bits(bits.y & 0xffff0000u));
  }
}
template <class E>
__device__ __forceinline__ void store1(E* p, float x) {
  if constexpr (std::is_same_v<E, float>) {
    *p = x;
  } else {
    *p = __float2bfloat16(x);
  }
}
template <class E>
__device__ __forceinline__ void store2(E* p, float x, float y) {  // p aligned to two elements
  if constexpr (std::is_same_v<E, float>) {
    *reinterpret_cast<float2*>(p) = make_float2(x, y);
  } else {
    *reinterpret_cast<__nv_bfloat162*>(p) = __floats2bfloat162_rn(x, y);
  }
}
template <class E>
__device__ __forceinline__ void store4(E* p, float4 x) {
  if constexpr (std::is_same_v<E, float>) {
    *reinterpret_cast<float4*>(p) = x;
  } else {
    store2(p, x.x, x.y);
    store2(p + 2, x.z, x.w);
  }
}

}  // namespace k3::cuda
