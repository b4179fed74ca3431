// What every step of the ladder computes and is given: the core of Kimi Delta Attention, one sequence, any number of
// heads, key and value dimension 128. Per head, state S [key, value] fp32:
//   D = e^g (.) S (rows);   u = beta (v - D^T k);   S <- D + k u^T;   o = scale S^T q
// Layout: q, k, v, g, o [tokens, heads, 128], beta [tokens, heads], states [heads, key, value], all contiguous.
// q and k are normalised, g is the natural logarithm of the decay, -5 <= g <= 0, 0 <= beta <= 1.
//
// Bytes of one token and head that any kernel must move: q, k, v, o in bf16, g and beta in fp32: 1540. The states come
// and go once (128 KiB a head). That is the floor against which every step is measured.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace k3::learn::kda {

inline constexpr int kDim = 128;

struct Arguments {
  int tokens = 0, heads = 0;
  const __nv_bfloat16 *q = nullptr, *k = nullptr, *v = nullptr;
  const float *g = nullptr, *beta = nullptr;
  const float* state_in = nullptr;
  const int* starts = nullptr;  // {0, tokens} on the device, for the library's kernels (step 7)
  float scale = 0;              // 128^-1/2
  __nv_bfloat16* o = nullptr;
  float* state_out = nullptr;
  void* workspace = nullptr;  // as many bytes as the step asks for
};

// One function a step; each in the file of its name.
cudaError_t step1_recurrence(const Arguments& a, cudaStream_t stream);
cudaError_t step2_registers(const Arguments& a, cudaStream_t stream);
cudaError_t step3_prefetch(const Arguments& a, cudaStream_t stream);
cudaError_t step4_chunk(const Arguments& a, cudaStream_t stream);
cudaError_t step5_tensor_cores(const Arguments& a, cudaStream_t stream);
cudaError_t step6_two_kernels(const Arguments& a, cudaStream_t stream);
std::size_t step6_workspace_bytes(int tokens, int heads);
cudaError_t step7_hopper(const Arguments& a, cudaStream_t stream);
std::size_t step7_workspace_bytes(int tokens, int heads);
bool step7_available();

}  // namespace k3::learn::kda
