// Depthwise causal convolution of four taps and SiLU on CUDA, every row from zeros (training, prefill from nothing):
//   c[t] = sum_j taps[:, j] u[t - 3 + j];  y = c sigmoid(c);  backward: dc = dy silu'(c), du[t] = sum_m taps[:, 3 - m] dc[t + m],
//   dtaps[:, j] = sum_t dc[t] u[t - 3 + j]; c is computed again. Terms that cross a row's start are dropped.
// Layout: u, y, dy, du [tokens, channels] contiguous, fp32 or bf16, channels a multiple of 4; taps [channels, 4] fp32;
// positions [tokens] int32: distance to the start of the row. Sums in fp32, one rounding. Source: checkpoint.md 3.2 step 2.
// A thread walks down kStrip tokens of four channels with the window in registers: each value is read once (plus a halo of 3 a strip).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace k3::cuda::short_conv {

inline constexpr int kTaps = 4;
inline constexpr int kStrip = 64;

struct Conv {
  std::int64_t tokens = 0;
  int channels = 0;
  bool bf16 = true;
  const void* u = nullptr;
  const float* taps = nullptr;
  const std::int32_t* positions = nullptr;
};

cudaError_t forward(const Conv& conv, void* y, cudaStream_t stream);

// d_taps_parts [strips(conv), channels, 4] fp32: its sum over the first axis is dtaps.
std::int64_t strips(const Conv& conv);
cudaError_t backward(const Conv& conv, const void* dy, void* du, float* d_taps_parts, cudaStream_t stream);

}  // namespace k3::cuda::short_conv
