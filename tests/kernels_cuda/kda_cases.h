// Inputs for the KDA tests (kernels.md 7.2) and the run of the plain chunk kernels over them. Inputs are first rounded
// to the type the kernel reads, so the oracle sees exactly the same numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/kda/kda.h"
#include "kernels_cuda/gpu.h"
#include "kernels_cuda/kda_oracle.h"

namespace k3::cuda::testing {

using kda::Type;

enum class Gate { moderate, bound, half, flat, deep, mixed_heads };  // log decay of a token and channel
enum class Keys { random, same, correlated, with_zeros };            // before normalisation
enum class Beta { random, one, zero, near_one };

struct Case {
  std::string name;
  int heads, dim;
  std::vector<int> lengths;
  Type type = Type::fp32;
  Gate gate = Gate::moderate;
  Keys keys = Keys::random;
  Beta beta = Beta::random;
  bool initial_state = true;
  bool packed = false;    // q, k, v as slices of one [tokens, 3, heads, dim] tensor, heads and tokens strided
  double state_size = 1;  // magnitude of the initial state
  double value_size = 1, gradient_size = 1;  // of v; of the gradients of o and of the final state
};

inline float round_bf16(float x) { return __bfloat162float(__float2bfloat16(x)); }

inline kda::oracle::Problem make_problem(const Case& c, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0, 1);
  kda::oracle::Problem p;
  p.heads = c.heads, p.dim = c.dim, p.scale = 1 / std::sqrt(static_cast<double>(c.dim));
  p.starts = {0};
  for (int length : c.lengths) p.starts.push_back(p.starts.back() + length);
  const std::size_t rows = static_cast<std::size_t>(p.tokens()) * c.heads, values = rows * c.dim;
  const auto rounded = [&](double x) {
    return c.type == Type::fp32 ? static_cast<float>(x) : round_bf16(static_cast<float>(x));
  };
  std::vector<double> common(c.dim);
  for (double& x : common) x = normal(random);
  const auto unit_rows = [&](bool keys) {
    std::vector<double> out(values);
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 1e-6;
      for (int d = 0; d < c.dim; ++d) {
        double x = normal(random);
        if (keys && c.keys == Keys::same) x = common[d];
        if (keys && c.keys == Keys::correlated) x = common[d] + 0.3 * x;
        if (c.keys == Keys::with_zeros && row % 5 == 2) x = 0;
        out[row * c.dim + d] = x;
        sum += x * x;
      }
      for (int d = 0; d < c.dim; ++d) out[row * c.dim + d] = rounded(out[row * c.dim + d] / std::sqrt(sum));
    }
    return out;
  };
  p.q = unit_rows(false);
  p.k = unit_rows(true);
  p.v.resize(values);
  for (double& x : p.v) x = rounded(c.value_size * normal(random));
  p.g.resize(values);
  for (std::size_t i = 0; i < values; ++i) {
    const int channel = static_cast<int>(i % c.dim), head = static_cast<int>(i / c.dim % c.heads);
    double g = 0;
    switch (c.gate) {
      case Gate::moderate:
        g = -5 / (1 + std::exp(-(normal(random) - 2)));
        break;
      case Gate::bound:
        g = -5;
        break;
      case Gate::half:
        g = channel % 2 ? -5 : -1e-6;
        break;
      case Gate::flat:
        g = -5 / (1 + std::exp(12.0));
        break;
      case Gate::deep:
        g = -40 * uniform(random);
        break;
      case Gate::mixed_heads:
        g = head % 2 ? -10 : 0;
        break;
    }
    p.g[i] = static_cast<float>(g);
  }
  p.beta.resize(rows);
  for (double& x : p.beta) {
    switch (c.beta) {
      case Beta::random:
        x = 1 / (1 + std::exp(-normal(random)));
        break;
      case Beta::one:
        x = 1;
        break;
      case Beta::zero:
        x = uniform(random) < 0.5 ? 0 : 0.7;
        break;
      case Beta::near_one:
        x = 1 / (1 + std::exp(-8.0));
        break;
    }
    x = static_cast<float>(x);
  }
  p.state.assign(c.lengths.size() * c.heads * c.dim * c.dim, 0.0);
  if (c.initial_state)
    for (double& x : p.state) x = static_cast<float>(c.state_size * normal(random));
  return p;
}

inline bool compare(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                    double tolerance) {
  double error = 0, reference = 0, largest = 0;
  std::size_t at = 0;
  bool finite = true;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(got[i] - want[i]);
    if (!std::isfinite(got[i]) && finite) finite = false, at = i;
    if (finite && d > largest) largest = d, at = i;
    error += d * d, reference += want[i] * want[i];
  }
  const double count = std::max<std::size_t>(want.size(), 1), rms = std::sqrt(error / count),
               size = std::sqrt(reference / count);
  const bool good = finite && (rms <= tolerance * size || rms <= 1e-9);
  if (!good || std::getenv("K3_VERBOSE"))
    std::printf("    %-14s %s rms ratio %.2e (limit %.0e)  max |d| %.2e at %zu of %zu: got %.7g want %.7g\n",
                what.c_str(), good ? "ok  " : "FAIL", size > 0 ? rms / size : rms, tolerance, largest, at, want.size(),
                want.empty() ? 0 : got[at], want.empty() ? 0 : want[at]);
  return good;
}

// A [tokens, heads, dim] tensor of fp32 or bf16 on the device with free strides, and its way back.
struct DeviceRows {
  Type type;
  std::int64_t tokens, token_stride, head_stride, offset;
  int heads, dim;
  Buffer* buffer;
  kda::Rows rows() const { return {at(), token_stride, head_stride}; }
  kda::MutableRows mutable_rows() const { return {at(), token_stride, head_stride}; }
  void* at() const { return buffer->as<char>() + offset * (type == Type::fp32 ? 4 : 2); }
};
inline void write_rows(const DeviceRows& d, const std::vector<double>& values) {
  std::vector<char> bytes(d.buffer->bytes());
  copy_out(bytes.data(), d.buffer->data(), bytes.size());
  for (std::int64_t t = 0; t < d.tokens; ++t)
    for (int h = 0; h < d.heads; ++h)
      for (int i = 0; i < d.dim; ++i) {
        const std::int64_t at = d.offset + t * d.token_stride + h * d.head_stride + i;
        const float x = static_cast<float>(values[(t * d.heads + h) * d.dim + i]);
        if (d.type == Type::fp32) reinterpret_cast<float*>(bytes.data())[at] = x;
        else reinterpret_cast<__nv_bfloat16*>(bytes.data())[at] = __float2bfloat16(x);
      }
  copy_in(d.buffer->data(), bytes.data(), bytes.size());
}
inline std::vector<double> read_rows(const DeviceRows& d) {
  std::vector<char> bytes(d.buffer->bytes());
  copy_out(bytes.data(), d.buffer->data(), bytes.size());
  std::vector<double> values(static_cast<std::size_t>(d.tokens) * d.heads * d.dim);
  for (std::int64_t t = 0; t < d.tokens; ++t)
    for (int h = 0; h < d.heads; ++h)
      for (int i = 0; i < d.dim; ++i) {
        const std::int64_t at = d.offset + t * d.token_stride + h * d.head_stride + i;
        values[(t * d.heads + h) * d.dim + i] =
            d.type == Type::fp32 ? reinterpret_cast<float*>(bytes.data())[at]
                                 : __bfloat162float(reinterpret_cast<__nv_bfloat16*>(bytes.data())[at]);
      }
  return values;
}
inline std::vector<float> narrow(const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); }
inline std::vector<double> widen(const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); }

// All device tensors of one case, forward and backward.
struct Run {
  Case c;
  kda::oracle::Problem p;
  Type output_type;
  Buffer qkv, g, beta, starts, state, o, final_state, d_o, d_final, d_qkv, dg, dbeta, d_state, workspace,
      backward_workspace;
  DeviceRows rows_q, rows_k, rows_v, rows_g, rows_beta, rows_o, rows_d_o, rows_dq, rows_dk, rows_dv, rows_dg,
      rows_dbeta;
  kda::ForwardInputs in;
  kda::ForwardOutputs out;
  kda::BackwardArguments back;

  Run(const Case& c_, const kda::oracle::Problem& p_, Type output_type_, const std::vector<double>& d_o_,
      const std::vector<double>& d_final_)
      : c(c_), p(p_), output_type(output_type_) {
    const std::int64_t T = p.tokens(), H = c.heads, D = c.dim, plain = T * H * D,
                       element = c.type == Type::fp32 ? 4 : 2;
    const std::int64_t out_element = output_type == Type::fp32 ? 4 : 2;
    qkv = Buffer(3 * plain * element), d_qkv = Buffer(3 * plain * element);
    g = Buffer(plain * 4), dg = Buffer(plain * 4), beta = Buffer(T * H * 4), dbeta = Buffer(T * H * 4);
    o = Buffer(plain * out_element), d_o = Buffer(plain * out_element);
    const auto part = [&](Buffer& buffer, int i) {
      return c.packed ? DeviceRows{c.type, T, 3 * H * D, D, i * H * D, c.heads, c.dim, &buffer}
                      : DeviceRows{c.type, T, H * D, D, i * plain, c.heads, c.dim, &buffer};
    };
    const auto whole = [&](Buffer& buffer, Type type) {
      return DeviceRows{type, T, H * D, D, 0, c.heads, c.dim, &buffer};
    };
    const auto scalars = [&](Buffer& buffer) { return DeviceRows{Type::fp32, T, H, 1, 0, c.heads, 1, &buffer}; };
    rows_q = part(qkv, 0), rows_k = part(qkv, 1), rows_v = part(qkv, 2), rows_g = whole(g, Type::fp32),
    rows_beta = scalars(beta);
    rows_dq = part(d_qkv, 0), rows_dk = part(d_qkv, 1), rows_dv = part(d_qkv, 2), rows_dg = whole(dg, Type::fp32);
    rows_dbeta = scalars(dbeta), rows_o = whole(o, output_type), rows_d_o = whole(d_o, output_type);
    write_rows(rows_q, p.q), write_rows(rows_k, p.k), write_rows(rows_v, p.v), write_rows(rows_g, p.g),
        write_rows(rows_beta, p.beta);
    write_rows(rows_d_o, d_o_);
    starts = upload(p.starts);
    state = upload(narrow(p.state)), final_state = Buffer(state.bytes()), d_final = upload(narrow(d_final_)),
    d_state = Buffer(state.bytes());
    in.shape = {T, p.sequences(), c.heads, c.dim};
    in.type = c.type, in.q = rows_q.rows(), in.k = rows_k.rows(), in.v = rows_v.rows(), in.g = rows_g.rows(),
    in.beta = rows_beta.rows();
    in.starts = starts.as<std::int32_t>(), in.initial_state = c.initial_state ? state.as<float>() : nullptr;
    in.scale = static_cast<float>(p.scale);
    out = {output_type, rows_o.mutable_rows(), final_state.as<float>()};
    back.inputs = in, back.output_type = output_type, back.d_o = rows_d_o.rows(),
    back.d_final_state = d_final.as<float>();
    back.dq = rows_dq.mutable_rows(), back.dk = rows_dk.mutable_rows(), back.dv = rows_dv.mutable_rows();
    back.dg = rows_dg.mutable_rows(), back.dbeta = rows_dbeta.mutable_rows(),
    back.d_initial_state = d_state.as<float>();
  }
  void forward(kda::Keep keep, cudaStream_t stream = nullptr) {
    if (workspace.bytes() != kda::forward_workspace_bytes(in.shape, keep))
      workspace = Buffer(kda::forward_workspace_bytes(in.shape, keep));
    REQUIRE_CUDA(kda::forward(in, out, keep, workspace.data(), stream));
  }
  void backward(bool kept, cudaStream_t stream = nullptr) {
    const std::size_t bytes = kda::backward_workspace_bytes(in.shape, kept);
    if (backward_workspace.bytes() != bytes) backward_workspace = Buffer(bytes);
    back.kept = kept ? workspace.data() : nullptr;
    REQUIRE_CUDA(kda::backward(back, backward_workspace.data(), stream));
  }
  void poison_outputs() {
    for (Buffer* b : {&o, &final_state, &d_qkv, &dg, &dbeta, &d_state, &workspace, &backward_workspace}) b->poison();
  }
  std::vector<std::vector<char>> outputs() {  // raw bytes, for comparisons bit by bit
    std::vector<std::vector<char>> all;
    for (Buffer* b : {&o, &final_state, &d_qkv, &dg, &dbeta, &d_state}) all.push_back(download<char>(*b));
    return all;
  }
};

}  // namespace k3::cuda::testing
