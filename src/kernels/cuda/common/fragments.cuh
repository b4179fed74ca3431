// Operands of tensor core products of a warp, straight from shared memory (addresses in shared space).
#pragma once

#include "kernels/cuda/common/device.cuh"

#ifndef K3_CUDA_EMULATOR
namespace k3::cuda {

// Four 8 x 8 matrices of 2-byte values: lane l gives the 16-byte row l % 8 of matrix l / 8 and receives of each matrix
// row l / 4, columns 2 (l % 4) + {0, 1}.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

}  // namespace k3::cuda
#endif
