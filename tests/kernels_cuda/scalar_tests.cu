// The fast scalar functions of device.cuh over the whole range of fp32, against fp64.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/common/device.cuh"
#include "kernels_cuda/gpu.h"
#include "kernels_cuda/test.h"

namespace k3::cuda::testing {
namespace {

struct Worst {
  double absolute, relative;  // relative: of x >= -7
  double sigmoid;             // absolute, of (1 + tanh(x / 2)) / 2
};

constexpr int kBlocks = 264, kThreads = 256;

// Every `step`-th bit pattern that is a finite number; the worst of each thread.
__global__ void sweep_silu(unsigned long long step, Worst* worst) {
  constexpr unsigned threads = kBlocks * kThreads;
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  Worst own{0, 0, 0};
  for (unsigned long long bits = thread * step; bits < 1ull << 32; bits += threads * step) {
    const float x = from_bits(static_cast<uint32_t>(bits));
    if (!(fabsf(x) <= 3e38f) || fabsf(x) < 1e-30f) continue;  // subnormal results count as zero
    const double exact = x / (1 + exp(-static_cast<double>(x))), error = fabs(silu_of_half(0.5f * x) - exact);
    own.absolute = max(own.absolute, x > 16 ? error / x : error);
    own.sigmoid = max(own.sigmoid, fabs(fmaf(0.5f, fast_tanh(0.5f * x), 0.5f) - exact / x));
    if (x >= -7) own.relative = max(own.relative, error / fabs(exact));
  }
  worst[thread] = own;
}

bool silu_case(unsigned long long step) {
  Buffer all(sizeof(Worst) * kBlocks * kThreads);
  REQUIRE_CUDA(launch(sweep_silu, dim3(kBlocks), kThreads, 0, nullptr, step, all.as<Worst>()));
  synchronize();
  Worst worst{0, 0, 0};
  for (const Worst& w : download<Worst>(all)) {
    worst.absolute = std::max(worst.absolute, w.absolute);
    worst.relative = std::max(worst.relative, w.relative);
    worst.sigmoid = std::max(worst.sigmoid, w.sigmoid);
  }
  std::printf("    silu: absolute error %.2e, relative %.2e from -7 on; sigmoid: absolute error %.2e\n", worst.absolute,
              worst.relative, worst.sigmoid);
  return worst.absolute > 0 && worst.absolute < 1.1e-5 && worst.relative < 1.4e-4 && worst.sigmoid < 4.1e-6;
}

}  // namespace

void add_scalar_tests(std::vector<Test>& all) {
#ifdef K3_CUDA_EMULATOR
  all.push_back({"silu-sweep", true, [] { return silu_case(65521); }});
#else
  all.push_back({"silu-sweep", true, [] { return silu_case(1); }});
#endif
}

}  // namespace k3::cuda::testing
