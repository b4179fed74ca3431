// Kimi Delta Attention, the token by token form for serving: decode (one token a row), verification of drafts and short
// rows of prompts, from the raw projections to the gated output in one kernel. Rules of kda.h: pointers, strides, a
// stream, nothing hidden.
//
// Per row, token and head (reference checkpoint.md 3.2):
//   1 q, k, v = silu(sum_j taps[:, j] x[t - 3 + j])  over the row's raw projections, rounded to the model's type; the
//   window holds the last 3
//   2 q, k    = q / |q|, k / |k|  (|x| = sqrt(sum x^2 + 1e-6)), q *= dim^-1/2
//   3 g       = lower_bound sigmoid(e^a_log (z + dt_bias)), or -e^a_log softplus(z + dt_bias) when lower_bound = 0;
//   beta = sigmoid(b)
//   4 D = e^g (.) S;  u = beta (v - D^T k);  o = D^T q + (k . q) u;  S <- D + k u^T          one pass: k and q meet
//   the same decayed state
//   5 y       = o / sqrt(mean o^2 + eps) * norm_weight * sigmoid(gate)
//
// Rows and slots. Row r owns tokens [starts[r], starts[r + 1]) and the state and window in slot slots[r]; a negative
// slot skips the row, its outputs stay untouched. The state and the window are written back once, after the first
// commit[r] tokens (commit null: after all). The tokens behind are drafts: they see the running state and leave no
// trace. Replay of accepted drafts is the same call with the accepted tokens of the last window in front (commit[r] =
// their number; serving.md 2.2, variant A). Slots of one call must differ.
//
// What is promised of bits: committed tokens are computed one by one, with the same operations in whichever call they
// stand, so a committed state, window and the outputs of committed tokens are bit for bit those of plain decoding.
// Drafts are computed in chunk form (step_drafts.cuh): their outputs agree with plain decoding to about 2^-17 (bf16
// models) or 2^-21 (fp32) of the sum of magnitudes, before y is rounded to the model's type.
//
// Layout: q, k, v, z, gate, y [tokens, heads, dim] with any strides, rows at multiples of 16 bytes; b [tokens, heads];
// taps [3, heads, dim, 4] fp32 (q, k, v; the last tap meets the current token); window [slots, 3, 3, heads * dim] of
// the model's type: 3 raw tokens, oldest first, q, k, v side by side; state [slots, heads, dim, dim] fp32, key first.
//
// One block per row and head. Rows of one token (longest = 1) have a kernel of their own, step_decode.cu;
// step_window.cu serves any rows. Every load of a block is issued before the first is needed; behind them a later
// block's state is asked into the L2. Decode moves the state by loads and stores of 16 bytes a thread, whole keys a
// warp; the tensor cores of the other kernel want it in another order, which shared memory and bulk copies give
// (step_tile.cuh).
// Precision: fp32 throughout, the convolution's output rounded to the model's type, the result rounded once.
// Bytes a row and head at dim 128 in bf16: state 2 x 65,536, window 2 x 2,304 (once each when nothing is committed),
// and 1,538 a token: 3072 row-heads move 422 MB for one token, 100 us at 4.2 TB/s, 455 MB for eight, 108 us.
// Operations: 4 a state element and committed token, 2 a draft (times 3 products of split operands on the tensor
// cores).
#pragma once

#include "kernels/cuda/kda/kda.h"

namespace k3::cuda::kda {

struct StepArguments {
  int rows = 0, heads = 0, dim = 0;      // dim 32, 64 or 128
  int longest = 0;                       // an upper bound of a row's tokens; 0: the host does not know
  Type type = Type::bf16;                // of q, k, v, z, b, gate, y and the window
  const std::int32_t* starts = nullptr;  // [rows + 1] device
  const std::int32_t* slots = nullptr;   // [rows] device
  const std::int32_t* commit = nullptr;  // [rows] device; null: every token
  Rows q, k, v;                          // raw projections
  Rows z;                                // decay logits
  Rows b;                                // beta logits [tokens, heads]
  Rows gate;                             // output gate logits
  const float* taps = nullptr;           // [3, heads, dim, 4]
  const float* a_log = nullptr;          // [heads]
  const float* dt_bias = nullptr;        // [heads, dim]
  const float* norm_weight = nullptr;    // [dim]
  float lower_bound = -5.f;              // 0: the softplus gate
  float norm_eps = 1e-5f;
  float* state = nullptr;  // [slots, heads, dim, dim]
  void* window = nullptr;  // [slots, 3, 3, heads * dim]
  MutableRows y;
};
cudaError_t step(const StepArguments& arguments, cudaStream_t stream);

}  // namespace k3::cuda::kda
