// Kimi Delta Attention. Per head, with state S [key_dim, value_dim] and log decay g <= 0 per key channel:
//   S <- exp(g) (.) S (rows);  u = beta (v - S^T k);  S <- S + k u^T;  o = key_dim^-1/2 S^T q      (q, k already L2-normalised)
// Layout: q, k, v, g [tokens, heads, dim]; beta [tokens, heads]; states [rows, heads, key_dim, value_dim] ("K first").
// Precision: everything in fp32 (fp64 for fp64 inputs); the output stays wide. Sources: kernels.md 1.1-1.6, checkpoint.md 3.2.
#pragma once

#include <optional>

#include "base/tensor.h"
#include "ops/rows.h"

namespace k3::ops {

inline constexpr std::int64_t kKdaChunk = 64;  // tokens a chunk
inline constexpr std::int64_t kKdaTile = 16;   // tokens a decay tile: 15 steps of -5 keep exp within fp32

// Log decay g [tokens, heads, dim] from the logits z [tokens, heads, dim]: with a lower bound b, g = b sigmoid(exp(A) (z + dt_bias));
// without, g = -exp(A) softplus(z + dt_bias). a_log [heads], dt_bias [heads * dim].
Tensor kda_gate(const Tensor& z, const Tensor& a_log, const Tensor& dt_bias, std::optional<double> lower_bound);

enum class KdaForm {
  recurrent,  // token by token, all rows at once
  chunk,      // kernels.md 1.2, WY form with tiles of kKdaTile; the sequential part runs once a chunk
  automatic,  // the CUDA kernels where they take the tensors (kda_cuda.h); else recurrent for rows of a few tokens, chunk otherwise
};

struct KdaInputs {
  Tensor q, k, v;  // [tokens, heads, dim]
  Tensor g;        // [tokens, heads, dim] log decay
  Tensor beta;     // [tokens, heads]
  // True when every g >= -5: decay tiles are then dense products; otherwise the diagonal tiles take differences first.
  bool bounded = false;
};

struct KdaResult {
  Tensor out;    // [tokens, heads, value_dim] wide
  Tensor state;  // [rows, heads, key_dim, value_dim] wide
};

// `state` undefined: every row starts from zeros. Differentiable in every tensor.
KdaResult kda(const KdaInputs& inputs, const RowPlan& plan, const Tensor& state, KdaForm form = KdaForm::automatic);

}  // namespace k3::ops
