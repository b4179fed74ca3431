// Checks of step.h's arguments, and the choice of the kernel.
#include "kernels/cuda/kda/step.h"

#include "kernels/cuda/kda/step_row.cuh"

namespace k3::cuda::kda {

cudaError_t step(const StepArguments& a, cudaStream_t stream) {
  if (a.rows < 0 || a.rows > 65535 || a.heads <= 0 || (a.dim != 32 && a.dim != 64 && a.dim != 128))
    return cudaErrorInvalidValue;
  if (a.rows == 0) return cudaSuccess;
  for (const void* p :
       {static_cast<const void*>(a.starts), static_cast<const void*>(a.slots), a.q.data, a.k.data, a.v.data, a.z.data,
        a.b.data, a.gate.data, static_cast<const void*>(a.taps), static_cast<const void*>(a.a_log),
        static_cast<const void*>(a.dt_bias), static_cast<const void*>(a.norm_weight), static_cast<const void*>(a.state),
        static_cast<const void*>(a.window), static_cast<const void*>(a.y.data)})
    if (!p) return cudaErrorInvalidValue;
  const int piece = a.type == Type::fp32 ? 4 : 8;  // elements of 16 bytes
  for (const Rows& rows : {a.q, a.k, a.v, a.z, a.gate, Rows{a.y.data, a.y.token_stride, a.y.head_stride}})
    if (reinterpret_cast<std::uintptr_t>(rows.data) % 16 != 0 || rows.token_stride % piece != 0 ||
        rows.head_stride % piece != 0)
      return cudaErrorInvalidValue;
  for (const void* p : {static_cast<const void*>(a.state), static_cast<const void*>(a.taps),
                        static_cast<const void*>(a.norm_weight), static_cast<const void*>(a.window)})
    if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) return cudaErrorInvalidValue;
  return a.longest == 1 ? step_detail::launch_decode(a, stream) : step_detail::launch_window(a, stream);
}

}  // namespace k3::cuda::kda
