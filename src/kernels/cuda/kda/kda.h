// Kimi Delta Attention on CUDA: plain pointers, strides and a stream. No torch, no allocation, no synchronisation, no
// host read of device memory: every call may be captured into a graph and run on any stream. Calls return cudaSuccess,
// cudaErrorInvalidValue (a shape, stride or pointer this file does not allow) or the error of a launch.
//
// Formula, per head, state S [key_dim, value_dim] ("K first"), log decay g <= 0 per key channel (natural logarithm),
// key_dim = value_dim, q and k already L2-normalised:
//   S <- exp(g) (.) S (rows);   u = beta (v - S^T k);   S <- S + k u^T;   o = scale S^T q
//
// Layout: q, k, v, g, o [tokens, heads, dim] with any token and head stride, dim contiguous; beta [tokens, heads];
// sequence n owns tokens [starts[n], starts[n+1]); states [sequences, heads, dim, dim] fp32, contiguous.
// Alignment: rows of q, k, v, g, o and their gradients start at multiples of 4 elements (16 bytes fp32, 8 bytes bf16).
//
// The plain chunk form (sm_80 and newer, any gate g <= 0, no lower bound), chunks of C = 32 tokens (kernels.md 1.2):
//   G = running sum of g
//   A_ij = scale q_i . (k_j e^(G_i - G_j)), i >= j;     L_ij = beta_i k_i . (k_j e^(G_i - G_j)), i > j
//   T = (I + L)^-1;     W = T (beta k e^G);             U = T (beta v);     R = U - W S
//   O = (scale q e^G) S + A R;                          S <- e^(G_C) S + (k e^(G_C - G))^T R
// 1 plan        which chunk belongs to which sequence                       one block
// 2 factors     A, T, W, U and the decayed operands of every chunk          one block a chunk and head
// 3 scan        states and outputs, chunk after chunk                       one a sequence, head and 32 value columns
// Backward (kernels.md 1.7, in the residual form, which needs neither dT nor dW):
// 4 scan back   dR = A^T dO + Kb dS;   dS <- e^(G_C) dS + Qd^T dO - W^T dR  as 3
// 5 gradients   X = T^T dR;   dv = beta X;   d(beta k e^G) = -X S^T;   dL = -X R^T;   dA = dO R^T;
//               then q, k, g, beta in one sweep                             as 2
//
// Precision: gates, decays, A, L, T, states and every sum in fp32; products of tiles on the tensor cores with tf32
// operands. fp32 inputs keep both halves of each operand (three products, about 2^-21). No decay ever exceeds 1:
// differences are taken before exp.
//
// bf16 inputs of dim 64 and 128 on sm_90 take the same formulas in chunks of 64 tokens with fp16 operands of the same
// relative precision as tf32 (chunk_hopper.cuh).
//
// Bytes a token and head at dim D, plain form, workspace written once and read once: 8 D fp32 operands, D^2 / 16 fp32
// of states (kept for backward), and the inputs. D = 64: 2.6 KB forward, 4.5 KB backward: 65536 tokens of 4 heads move
// 0.7 and 1.2 GB, 0.17 and 0.3 ms at 4 TB/s. Operations forward: 16.5 D exponentials on pairs, about 10 D^2 in products.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace k3::cuda::kda {

enum class Type { fp32, bf16 };

struct Rows {  // [tokens, heads, dim], strides in elements
  const void* data = nullptr;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};
struct MutableRows {
  void* data = nullptr;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

struct Shape {
  std::int64_t tokens = 0;  // of all sequences together
  int sequences = 0;
  int heads = 0;
  int dim = 0;  // 32, 64 or 128; keys and values alike
};

struct ForwardInputs {
  Shape shape;
  Type type = Type::bf16;  // of q, k, v
  Rows q, k, v;            // [tokens, heads, dim]
  Rows g;                  // [tokens, heads, dim] fp32 log decay
  Rows beta;               // [tokens, heads] fp32
  const std::int32_t* starts =
      nullptr;  // device, [sequences + 1], starts[0] = 0, starts[sequences] = tokens; empty sequences are fine
  const float* initial_state = nullptr;  // [sequences, heads, dim, dim]; null: zeros
  float scale = 1.f;                     // dim^-1/2
};
struct ForwardOutputs {
  Type type = Type::bf16;        // of o
  MutableRows o;                 // [tokens, heads, dim]
  float* final_state = nullptr;  // [sequences, heads, dim, dim]; null: not wanted; may be initial_state itself
};

// Which kernels forward and backward run for these inputs on the current device.
enum class ChunkPath { plain, hopper };
ChunkPath chunk_path(const Shape& shape, Type type);

// What forward leaves in its workspace: nothing of use, or everything backward would otherwise compute again.
enum class Keep { nothing, for_backward };

std::size_t forward_workspace_bytes(const Shape& shape, Keep keep);
cudaError_t forward(const ForwardInputs& inputs, const ForwardOutputs& outputs, Keep keep, void* workspace,
                    cudaStream_t stream);

struct BackwardArguments {
  ForwardInputs inputs;                  // exactly those of forward
  Type output_type = Type::bf16;         // of d_o
  Rows d_o;                              // [tokens, heads, dim]
  const float* d_final_state = nullptr;  // [sequences, heads, dim, dim]; null: zeros
  const void* kept =
      nullptr;             // workspace of forward(..., Keep::for_backward, ...); null: computed again in `workspace`
  MutableRows dq, dk, dv;  // inputs.type
  MutableRows dg;          // fp32
  MutableRows dbeta;       // fp32 [tokens, heads]
  float* d_initial_state = nullptr;  // [sequences, heads, dim, dim]; null: not wanted
};
std::size_t backward_workspace_bytes(const Shape& shape, bool kept);
cudaError_t backward(const BackwardArguments& arguments, void* workspace, cudaStream_t stream);

}  // namespace k3::cuda::kda
