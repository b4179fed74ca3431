// Picks the compiled kernel for a head dimension and an element type.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/kda/kda.h"

namespace k3::cuda::kda {

// Calls run.template operator()<dim, element>() for the shapes that exist.
template <class Run>
cudaError_t dispatch(int dim, Type type, Run run) {
  const auto with_dim = [&]<int kDim>() {
    return type == Type::fp32 ? run.template operator()<kDim, float>() : run.template operator()<kDim, __nv_bfloat16>();
  };
  switch (dim) {
    case 32:
      return with_dim.template operator()<32>();
    case 64:
      return with_dim.template operator()<64>();
    case 128:
      return with_dim.template operator()<128>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace k3::cuda::kda
