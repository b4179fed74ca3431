// Warpgroup matrix products of sm_90a: A in registers or shared memory, B in shared memory, bf16 or fp16 in, fp32 sums.
// Encodings as measured in kernels.md 8.4.
//
// B is a "panel": [rows][64] bf16, 128 bytes a row, 1024-byte aligned, the 16-byte piece p of row r at piece
// p ^ (r % 8) (128-byte swizzle).
//   along rows (k contiguous inside a row, kAcross = 0): rows are the n index; the next 16 k are 32 bytes on; 8 rows
//     are 1024 bytes.
//   across rows (n contiguous inside a row, kAcross = 1): rows are the k index; the next 16 k are 2048 bytes on;
//     `stride` leads to the next 64 n.
// Sums of m64nN in thread t of the warpgroup: row 16 (t / 32) + (t % 32) / 4, columns 8 j + 2 (t % 4) + {0, 1} in
// d[4 j + 0, 1], the same columns of row + 8 in d[4 j + 2, 3]. Packing neighbours gives the A fragments of the next
// product: a[i] = bf16x2(d[2 i], d[2 i + 1]).
#pragma once

#include "kernels/cuda/common/device.cuh"

namespace k3::cuda {

__device__ __forceinline__ uint64_t panel_descriptor(uint32_t address, uint32_t stride = 16) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(stride >> 4) << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | uint64_t{1} << 62;
}
// The same, `bytes` further: one addition, because the field of the address takes no carry.
__device__ __forceinline__ uint64_t further(uint64_t descriptor, uint32_t bytes) {
  return descriptor >> 32 << 32 | (static_cast<uint32_t>(descriptor) + (bytes >> 4));
}

}  // namespace k3::cuda

#ifndef K3_CUDA_EMULATOR
namespace k3::cuda {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler takes the sums for ready when the instruction is issued; after the wait this keeps their uses behind it.
template <int kCount>
__device__ __forceinline__ void settle(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The 16, 32 or 64 sums of an instruction: their places in its text, and d as its operands.
#define K3_PLACES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define K3_PLACES_32 K3_PLACES_16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define K3_PLACES_64 K3_PLACES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define K3_SUMS_16 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define K3_SUMS_32 K3_SUMS_16, \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define K3_SUMS_64 K3_SUMS_32, \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

// d = [d +] kSign * a * b;  kAdd = 0 starts the sum. Operands in bf16, and in fp16.
// a, b, add, sign, across: their places in the text, behind those of the sums.
#define K3_WGMMA_OF(name, types, shape, count, a_places, b_place, add, sign, across) \
  template <int kAdd, int kSign, int kAcross> \
  __device__ __forceinline__ void name(float (&d)[count], const uint32_t* a, uint64_t b) { \
    asm volatile( \
        "{\n.reg .pred add;\nsetp.ne.b32 add, " add ", 0;\n" \
        "wgmma.mma_async.sync.aligned." shape ".f32." types " {" K3_PLACES_##count "}, {" a_places "}, " b_place \
        ", add, 1, " sign ", " across ";\n}\n" \
        : K3_SUMS_##count \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd), "n"(kSign), "n"(kAcross) \
        : "memory"); \
  }
#define K3_WGMMA(name, types) \
  K3_WGMMA_OF(name, types, "m64n32k16", 16, "%16, %17, %18, %19", "%20", "%21", "%22", "%23") \
  K3_WGMMA_OF(name, types, "m64n64k16", 32, "%32, %33, %34, %35", "%36", "%37", "%38", "%39") \
  K3_WGMMA_OF(name, types, "m64n128k16", 64, "%64, %65, %66, %67", "%68", "%69", "%70", "%71")
K3_WGMMA(wgmma, "bf16.bf16")
K3_WGMMA(wgmma_half, "f16.f16")
#undef K3_WGMMA_OF
#undef K3_WGMMA

// The same in fp16 with both operands from panels, k along the rows of the left one.
#define K3_WGMMA_ROWS(shape, count, a_place, b_place, add, sign, across) \
  template <int kAdd, int kSign, int kAcross = 0> \
  __device__ __forceinline__ void wgmma_half_rows(float (&d)[count], uint64_t a, uint64_t b) { \
    asm volatile( \
        "{\n.reg .pred add;\nsetp.ne.b32 add, " add ", 0;\n" \
        "wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" K3_PLACES_##count "}, " a_place ", " b_place \
        ", add, 1, " sign ", 0, " across ";\n}\n" \
        : K3_SUMS_##count \
        : "l"(a), "l"(b), "n"(kAdd), "n"(kSign), "n"(kAcross) \
        : "memory"); \
  }
K3_WGMMA_ROWS("m64n32k16", 16, "%16", "%17", "%18", "%19", "%20")
K3_WGMMA_ROWS("m64n64k16", 32, "%32", "%33", "%34", "%35", "%36")
K3_WGMMA_ROWS("m64n128k16", 64, "%64", "%65", "%66", "%67", "%68")
#undef K3_WGMMA_ROWS
#undef K3_PLACES_16
#undef K3_PLACES_32
#undef K3_PLACES_64
#undef K3_SUMS_16
#undef K3_SUMS_32
#undef K3_SUMS_64

// Four 8 x 8 matrices, transposed on the way: on a token-major panel, exactly the order of the sums above for 16
// tokens x 16 columns.
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace k3::cuda
#endif
