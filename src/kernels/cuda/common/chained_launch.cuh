// Kernels of one stream whose starts overlap (programmatic dependent launch, sm_90): a chained kernel may start once
// every block of the kernel before it has called release_next_kernel() or ended; await_previous_kernel() then holds a
// thread until that kernel has ended and its writes are visible. A kernel counts as ended only when all its blocks
// have; so as long as every kernel of a chain has at least one block that awaits, everything before the previous kernel
// has ended too.
#pragma once

#include "kernels/cuda/common/device.cuh"

namespace k3::cuda {

#ifdef K3_CUDA_EMULATOR
inline void release_next_kernel() {}
inline void await_previous_kernel() {}
template <int kCluster = 1, class... Parameters, class... Arguments>
cudaError_t launch_chained(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
                           cudaStream_t stream, Arguments&&... arguments) {
  return launch<kCluster>(kernel, grid, threads, shared_bytes, stream, arguments...);
}
#else
// Before sm_90 kernels of a stream do not overlap, and both do nothing.
__device__ __forceinline__ void release_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void await_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// launch() of device.cuh with a start that may overlap the end of the stream's previous kernel; kCluster: neighbouring
// blocks that run together (sm_90).
template <int kCluster = 1, class... Parameters, class... Arguments>
cudaError_t launch_chained(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
                           cudaStream_t stream, Arguments&&... arguments) {
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  int device = 0, major = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
      error != cudaSuccess)
    return error;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = dim3(threads), config.dynamicSmemBytes = shared_bytes;
  config.stream = stream, config.attrs = attributes, config.numAttrs = major >= 9 ? (kCluster > 1 ? 2 : 1) : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}
#endif

}  // namespace k3::cuda
