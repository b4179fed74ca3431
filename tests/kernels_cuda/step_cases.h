// Inputs of the fused token kernels, the layer of step.h's formula in fp64, and the device tensors of a call.
#pragma once

#include "kernels/cuda/common/device.cuh"  // device_capability
#include "kernels/cuda/kda/step.h"
#include "kernels_cuda/kda_cases.h"

namespace k3::cuda::testing {

inline bool on_hopper_gpu() { return device_capability() == 90; }

struct StepCase {
  std::string name;
  int heads, dim, slots;
  Type type;
  std::vector<int> lengths, slot_of, commit;  // commit empty: all
  double lower_bound = -5, logits = 2;        // size of the decay logits
};

struct Inputs {                                 // rounded to the type
  std::vector<double> qkv, z, gate, b;          // [tokens, 3, heads, dim], [tokens, heads, dim] x 2, [tokens, heads]
  std::vector<double> taps, a_log, bias, norm;  // [3, heads, dim, 4], ...
  std::vector<double> state, window;            // [slots, heads, dim, dim], [slots, 3, 3, heads * dim]
  std::vector<int> starts{0};
};
inline Inputs make_inputs(const StepCase& c, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const auto draw = [&](std::size_t count, double size, Type type, double mean = 0) {
    std::vector<double> x(count);
    for (double& value : x) {
      value = mean + size * normal(random);
      value = type == Type::fp32 ? static_cast<float>(value) : round_bf16(static_cast<float>(value));
    }
    return x;
  };
  Inputs in;
  for (int length : c.lengths) in.starts.push_back(in.starts.back() + length);
  const std::size_t tokens = in.starts.back(), width = static_cast<std::size_t>(c.heads) * c.dim;
  in.qkv = draw(3 * tokens * width, 1, c.type), in.z = draw(tokens * width, c.logits, c.type),
  in.gate = draw(tokens * width, 1, c.type);
  in.b = draw(tokens * c.heads, 1, c.type);
  in.taps = draw(12 * width, 0.5, Type::fp32), in.a_log = draw(c.heads, 0.3, Type::fp32),
  in.bias = draw(width, 1, Type::fp32);
  in.norm = draw(c.dim, 0.1, Type::fp32, 1);
  in.state = draw(c.slots * width * c.dim, 1, Type::fp32), in.window = draw(c.slots * 9 * width, 1, c.type);
  return in;
}

struct Expected {
  std::vector<double> y, state, window;
};
inline Expected oracle(const StepCase& c, const Inputs& in) {
  const int H = c.heads, D = c.dim, tokens = in.starts.back();
  const std::size_t width = static_cast<std::size_t>(H) * D;
  const auto rounded = [&](double x) {
    return c.type == Type::fp32 ? x : static_cast<double>(round_bf16(static_cast<float>(x)));
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  Expected out{std::vector<double>(tokens * width), in.state, in.window};
  for (std::size_t row = 0; row + 1 < in.starts.size(); ++row) {
    const int slot = c.slot_of[row], length = in.starts[row + 1] - in.starts[row];
    if (slot < 0) continue;
    const int commit = c.commit.empty() ? length : c.commit[row];
    for (int h = 0; h < H; ++h) {
      std::vector<double> S(&in.state[(slot * width + h * D) * D], &in.state[(slot * width + h * D) * D] + D * D),
          past(9 * D);
      for (int i = 0; i < 3; ++i)
        for (int which = 0; which < 3; ++which)
          for (int d = 0; d < D; ++d)
            past[(i * 3 + which) * D + d] = in.window[((slot * 3 + i) * 3 + which) * width + h * D + d];
      for (int t = 0; t < length; ++t) {
        const std::size_t token = in.starts[row] + t;
        std::vector<double> x[3], g(D), u(D), o(D);
        double squares[3] = {1e-6, 1e-6, 0};
        for (int which = 0; which < 3; ++which)
          for (int d = 0; d < D; ++d) {
            const double* taps = &in.taps[((which * H + h) * D + d) * 4];
            const double raw = in.qkv[(token * 3 + which) * width + h * D + d];
            double sum = taps[3] * raw;
            for (int i = 0; i < 3; ++i) sum += taps[i] * past[(i * 3 + which) * D + d];
            for (int i = 0; i < 2; ++i) past[(i * 3 + which) * D + d] = past[((i + 1) * 3 + which) * D + d];
            past[(2 * 3 + which) * D + d] = raw;
            x[which].push_back(rounded(sum * sigmoid(sum)));
            squares[which] += x[which][d] * x[which][d];
          }
        for (int d = 0; d < D; ++d) {
          x[0][d] /= std::sqrt(squares[0]), x[1][d] /= std::sqrt(squares[1]);
          const double logit = in.z[token * width + h * D + d] + in.bias[h * D + d], speed = std::exp(in.a_log[h]);
          g[d] = c.lower_bound != 0 ? c.lower_bound * sigmoid(speed * logit) : -speed * std::log1p(std::exp(logit));
        }
        kda::oracle::step(D, 1 / std::sqrt(static_cast<double>(D)), S.data(), x[0].data(), x[1].data(), x[2].data(),
                          g.data(), sigmoid(in.b[token * H + h]), u.data(), o.data());
        double square = 0;
        for (double value : o) square += value * value / D;
        for (int d = 0; d < D; ++d)
          out.y[token * width + h * D + d] =
              o[d] / std::sqrt(square + 1e-5) * in.norm[d] * sigmoid(in.gate[token * width + h * D + d]);
        if (t + 1 != commit) continue;
        std::copy(S.begin(), S.end(), &out.state[(slot * width + h * D) * D]);
        for (int i = 0; i < 3; ++i)
          for (int which = 0; which < 3; ++which)
            for (int d = 0; d < D; ++d)
              out.window[((slot * 3 + i) * 3 + which) * width + h * D + d] = past[(i * 3 + which) * D + d];
      }
    }
  }
  return out;
}

struct Device {
  StepCase c;
  Buffer qkv, z, gate, b, taps, a_log, bias, norm, state, window, y, starts, slots, commit;
  kda::StepArguments a;
  DeviceRows rows_y, rows_window;

  Device(const StepCase& c_, const Inputs& in) : c(c_) {
    const std::int64_t H = c.heads, D = c.dim, width = H * D, tokens = in.starts.back(),
                       element = c.type == Type::fp32 ? 4 : 2;
    const auto flat = [&](Buffer& buffer, const std::vector<double>& values, Type type) {
      buffer = Buffer(values.size() * (type == Type::fp32 ? 4 : 2));
      write_rows({type, static_cast<std::int64_t>(values.size()), 1, 1, 0, 1, 1, &buffer}, values);
    };
    flat(qkv, in.qkv, c.type), flat(z, in.z, c.type), flat(gate, in.gate, c.type), flat(b, in.b, c.type),
        flat(window, in.window, c.type);
    flat(taps, in.taps, Type::fp32), flat(a_log, in.a_log, Type::fp32), flat(bias, in.bias, Type::fp32),
        flat(norm, in.norm, Type::fp32);
    flat(state, in.state, Type::fp32);
    y = Buffer(tokens * width * element);
    starts = upload(in.starts), slots = upload(c.slot_of), commit = upload(c.commit);
    rows_y = {c.type, tokens, width, D, 0, c.heads, c.dim, &y};
    rows_window = {c.type, c.slots * 9 * width, 1, 1, 0, 1, 1, &window};
    const auto stream = [&](int which) { return kda::Rows{qkv.as<char>() + which * width * element, 3 * width, D}; };
    a.longest = *std::max_element(c.lengths.begin(), c.lengths.end());
    a.rows = static_cast<int>(c.lengths.size()), a.heads = c.heads, a.dim = c.dim, a.type = c.type;
    a.starts = starts.as<std::int32_t>(), a.slots = slots.as<std::int32_t>(),
    a.commit = c.commit.empty() ? nullptr : commit.as<std::int32_t>();
    a.q = stream(0), a.k = stream(1), a.v = stream(2), a.z = {z.data(), width, D}, a.b = {b.data(), H, 1},
    a.gate = {gate.data(), width, D};
    a.taps = taps.as<float>(), a.a_log = a_log.as<float>(), a.dt_bias = bias.as<float>(),
    a.norm_weight = norm.as<float>();
    a.lower_bound = static_cast<float>(c.lower_bound), a.state = state.as<float>(), a.window = window.data(),
    a.y = rows_y.mutable_rows();
  }
};

// Rows without a slot must have kept their poison.
inline bool check_step(const Device& device, const Inputs& in, const Expected& want, double y_limit,
                       double state_limit) {
  const StepCase& c = device.c;
  std::vector<double> y = read_rows(device.rows_y), expected = want.y;
  for (std::size_t row = 0; row < c.lengths.size(); ++row)  // skipped rows keep their poison: leave them out
    if (c.slot_of[row] < 0)
      for (std::size_t i = static_cast<std::size_t>(in.starts[row]) * c.heads * c.dim;
           i < static_cast<std::size_t>(in.starts[row + 1]) * c.heads * c.dim; ++i)
        y[i] = std::isnan(y[i]) ? 0 : 1e9, expected[i] = 0;
  bool good = compare("y", y, expected, y_limit);
  good = compare("state", widen(download<float>(device.state)), want.state, state_limit) && good;
  return compare("window", read_rows(device.rows_window), want.window, 0) && good;
}

}  // namespace k3::cuda::testing
