// Kimi Delta Attention token by token in fp64, forward and adjoint: what every KDA kernel is measured against.
//   D = e^g (.) S;  u = beta (v - D^T k);  S = D + k u^T;  o = scale S^T q
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace k3::cuda::kda::oracle {

struct Problem {
  int heads = 1, dim = 32;
  std::vector<int> starts;         // [sequences + 1]
  std::vector<double> q, k, v, g;  // [tokens, heads, dim]
  std::vector<double> beta;        // [tokens, heads]
  std::vector<double> state;       // [sequences, heads, dim, dim]
  double scale = 1;
  int sequences() const { return static_cast<int>(starts.size()) - 1; }
  int tokens() const { return starts.back(); }
};
struct Result {
  std::vector<double> o, state;
};
struct Gradients {
  std::vector<double> q, k, v, g, beta, state;
};

// One token of one head; S [dim, dim] is updated; returns u in `u`, the output in `o`.
inline void step(int dim, double scale, double* S, const double* q, const double* k, const double* v, const double* g,
                 double beta, double* u, double* o) {
  for (int i = 0; i < dim; ++i) {
    const double alpha = std::exp(g[i]);
    for (int j = 0; j < dim; ++j) S[i * dim + j] *= alpha;
  }
  for (int j = 0; j < dim; ++j) {
    double seen = 0;
    for (int i = 0; i < dim; ++i) seen += S[i * dim + j] * k[i];
    u[j] = beta * (v[j] - seen);
  }
  for (int i = 0; i < dim; ++i)
    for (int j = 0; j < dim; ++j) S[i * dim + j] += k[i] * u[j];
  for (int j = 0; j < dim; ++j) {
    o[j] = 0;
    for (int i = 0; i < dim; ++i) o[j] += scale * S[i * dim + j] * q[i];
  }
}

inline Result forward(const Problem& p) {
  const int D = p.dim;
  Result result{std::vector<double>(p.v.size()), p.state};
  std::vector<double> u(D);
  for (int n = 0; n < p.sequences(); ++n)
    for (int h = 0; h < p.heads; ++h)
      for (int t = p.starts[n]; t < p.starts[n + 1]; ++t) {
        const std::size_t at = (static_cast<std::size_t>(t) * p.heads + h) * D;
        step(D, p.scale, &result.state[(static_cast<std::size_t>(n) * p.heads + h) * D * D], &p.q[at], &p.k[at],
             &p.v[at], &p.g[at], p.beta[at / D], u.data(), &result.o[at]);
      }
  return result;
}

// Gradients of sum(o . d_o) + sum(state . d_state) for the final state.
inline Gradients backward(const Problem& p, const std::vector<double>& d_o, const std::vector<double>& d_final) {
  const int D = p.dim;
  Gradients out{std::vector<double>(p.q.size()), std::vector<double>(p.q.size()),    std::vector<double>(p.q.size()),
                std::vector<double>(p.q.size()), std::vector<double>(p.beta.size()), d_final};
  for (int n = 0; n < p.sequences(); ++n)
    for (int h = 0; h < p.heads; ++h) {
      const int length = p.starts[n + 1] - p.starts[n];
      const std::size_t state_at = (static_cast<std::size_t>(n) * p.heads + h) * D * D;
      std::vector<double> states(static_cast<std::size_t>(length + 1) * D * D), u(static_cast<std::size_t>(length) * D),
          o(D);
      std::copy(&p.state[state_at], &p.state[state_at] + D * D, states.begin());
      for (int t = 0; t < length; ++t) {
        const std::size_t at = (static_cast<std::size_t>(p.starts[n] + t) * p.heads + h) * D;
        double* S = &states[static_cast<std::size_t>(t + 1) * D * D];
        std::copy(S - D * D, S, S);
        step(D, p.scale, S, &p.q[at], &p.k[at], &p.v[at], &p.g[at], p.beta[at / D], &u[static_cast<std::size_t>(t) * D],
             o.data());
      }
      double* dS = &out.state[state_at];
      std::vector<double> du(D), seen(D);
      for (int t = length - 1; t >= 0; --t) {
        const std::size_t token = static_cast<std::size_t>(p.starts[n] + t) * p.heads + h, at = token * D;
        const double *before = &states[static_cast<std::size_t>(t) * D * D], *after = before + D * D,
                     *ut = &u[static_cast<std::size_t>(t) * D];
        for (int i = 0; i < D; ++i)
          for (int j = 0; j < D; ++j) {
            out.q[at + i] += p.scale * after[i * D + j] * d_o[at + j];
            dS[i * D + j] += p.scale * p.q[at + i] * d_o[at + j];
          }
        std::vector<double> weight(D);
        for (int i = 0; i < D; ++i) weight[i] = std::exp(p.g[at + i]) * p.k[at + i];
        for (int j = 0; j < D; ++j) {
          du[j] = seen[j] = 0;
          for (int i = 0; i < D; ++i) {
            du[j] += dS[i * D + j] * p.k[at + i];
            seen[j] += weight[i] * before[i * D + j];
          }
          out.v[at + j] = p.beta[token] * du[j];
          out.beta[token] += du[j] * (p.v[at + j] - seen[j]);
        }
        for (int i = 0; i < D; ++i) {
          const double alpha = std::exp(p.g[at + i]);
          double d_alpha = 0;
          for (int j = 0; j < D; ++j) {
            out.k[at + i] += dS[i * D + j] * ut[j] - p.beta[token] * du[j] * alpha * before[i * D + j];
            dS[i * D + j] -= p.beta[token] * du[j] * p.k[at + i];  // gradient of the decayed state
            d_alpha += dS[i * D + j] * before[i * D + j];
            dS[i * D + j] *= alpha;
          }
          out.g[at + i] = alpha * d_alpha;
        }
      }
    }
  return out;
}

}  // namespace k3::cuda::kda::oracle
