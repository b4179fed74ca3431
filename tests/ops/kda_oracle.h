// The recurrence of kernels.md 1.1 token by token in plain double loops: what every KDA path is held to. Shares nothing with src/ops.
#pragma once

#include <cmath>
#include <vector>

#include "base/tensor.h"

namespace k3::test {

struct OracleKda {
  Tensor out;    // [tokens, heads, dim]
  Tensor state;  // [rows, heads, dim, dim]
};

inline OracleKda oracle_kda(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta,
                            const std::vector<std::int64_t>& starts, const Tensor& initial) {
  const std::int64_t heads = q.size(1), dim = q.size(2), rows = static_cast<std::int64_t>(starts.size()) - 1;
  const auto flat = [](const Tensor& x) { return x.detach().to(at::kDouble).cpu().contiguous(); };
  const Tensor qd = flat(q), kd = flat(k), vd = flat(v), gd = flat(g), bd = flat(beta);
  OracleKda result{at::zeros(v.sizes(), at::kDouble), initial.defined() ? flat(initial).clone() : at::zeros({rows, heads, dim, dim}, at::kDouble)};
  double* out = result.out.data_ptr<double>();
  double* states = result.state.data_ptr<double>();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head) {
      double* s = states + (row * heads + head) * dim * dim;
      for (std::int64_t token = starts[row]; token < starts[row + 1]; ++token) {
        const std::int64_t at = (token * heads + head) * dim;
        const double *qt = qd.data_ptr<double>() + at, *kt = kd.data_ptr<double>() + at, *vt = vd.data_ptr<double>() + at,
                     *gt = gd.data_ptr<double>() + at;
        const double b = bd.data_ptr<double>()[token * heads + head];
        for (std::int64_t i = 0; i < dim; ++i)
          for (std::int64_t j = 0; j < dim; ++j) s[i * dim + j] *= std::exp(gt[i]);
        for (std::int64_t j = 0; j < dim; ++j) {
          double predicted = 0;
          for (std::int64_t i = 0; i < dim; ++i) predicted += s[i * dim + j] * kt[i];
          const double u = b * (vt[j] - predicted);
          double o = 0;
          for (std::int64_t i = 0; i < dim; ++i) {
            s[i * dim + j] += kt[i] * u;
            o += s[i * dim + j] * qt[i];
          }
          out[at + j] = o / std::sqrt(static_cast<double>(dim));
        }
      }
    }
  return result;
}

}  // namespace k3::test
