// Attention Residuals mix on CUDA: plain pointers and a stream, no torch, no allocation, no synchronisation.
//   r_i = (mean(v_i^2) + eps)^-1/2;  s_i = r_i <query, v_i>;  p = softmax_i(s);  out = sum_i p_i v_i       query = norm (.) proj
// backward, given dh (training.md 1.9): e_i = <dh, v_i>;  ds_i = p_i (e_i - sum_j p_j e_j);
//   dv_i = p_i dh + ds_i r_i (query - v_i r_i^2 <query, v_i> / hidden);   dquery = sum over tokens, i of ds_i r_i v_i
// Layout: sources and out [tokens, hidden] contiguous, fp32 or bf16; query [hidden] fp32. Precision: everything in fp32, one rounding.
// One warp a token; each source is read twice (the second time from cache) and nothing but the inputs is kept for the backward.
// Bytes a token: forward (sources + 1) hidden elements, backward (2 sources + 1); 8 sources of 7168 bf16: 0.13 MB, 30 ns at 4.2 TB/s.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace k3::cuda::attn_res {

inline constexpr int kMaxSources = 9;  // 93 layers in blocks of 12, and the prefix

struct Mix {
  std::int64_t tokens = 0;
  int hidden = 0;   // a multiple of 4
  int sources = 0;  // 2..kMaxSources
  bool bf16 = true;
  const void* values[kMaxSources] = {};
  const float* query = nullptr;
  float eps = 1e-5f;
};

cudaError_t forward(const Mix& mix, void* out, cudaStream_t stream);

// d_query_parts [backward_parts(mix), hidden] fp32: its sum over the first axis is dquery.
int backward_parts(const Mix& mix);
cudaError_t backward(const Mix& mix, const void* d_out, void* const d_values[kMaxSources], float* d_query_parts, cudaStream_t stream);

}  // namespace k3::cuda::attn_res
