// Two blocks of a cluster (sm_90) on two multiprocessors, each of which writes to the shared memory of the other. Both
// lay it out alike: addresses are those of the writer's own shared memory.
#pragma once

#include "kernels/cuda/common/device.cuh"

namespace k3::cuda {

#ifdef K3_CUDA_EMULATOR
inline void await_cluster() { emulator::cluster_barrier(); }
struct Peer {
  explicit Peer(uint32_t) {}
  void store(uint32_t address, float value, uint32_t barrier) const {
    emulator::Block* const own = emulator::block;
    emulator::block = own->peer;
    *reinterpret_cast<float*>(shared_at(address)) = value;
    emulator::block->barriers.at(barrier).bytes -= 4;
    emulator::block->barriers.at(barrier).settle();
    emulator::block = own;
  }
};
#else
// All threads of both blocks: what was written before it, barriers made among it, can be used behind it.
__device__ __forceinline__ void await_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The other block.
struct Peer {
  uint32_t further;  // from an address of its own shared memory, such as `own`, to the same one of the other's
  __device__ __forceinline__ explicit Peer(uint32_t own) {
    uint32_t other;
    asm("{\n.reg .b32 rank;\nmov.u32 rank, %%cluster_ctarank;\nxor.b32 rank, rank, 1;\n"
        "mapa.shared::cluster.u32 %0, %1, rank;\n}\n"
        : "=r"(other)
        : "r"(own));
    further = other - own;
  }
  // Reports 4 bytes to the other's barrier, behind which the value can be read.
  __device__ __forceinline__ void store(uint32_t address, float value, uint32_t barrier) const {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     address + further),
                 "r"(bits_of(value)), "r"(barrier + further)
                 : "memory");
  }
};
#endif

}  // namespace k3::cuda
