// One KDA layer's inputs through every family of kernels, each against its fp64 oracle: the token step (tokens of a row
// committed, and as drafts), the Hopper prefill (whole and split), and the chunk form, forward and backward, fed with
// the normalised q, k, v, gates and betas of the same inputs.
#pragma once

#include "kernels/cuda/kda/prefill.h"
#include "kernels_cuda/step_cases.h"

namespace k3::cuda::testing {

struct LayerLimits {  // of the ratio of rms error to rms value
  double step_y = 4e-3, step_state = 2e-3;
  double prefill_y = 8e-3, prefill_state = 7e-3;
  double wide = 1.5e-3, narrow = 3.5e-3, dbeta = 3e-3, dv = 3.5e-3;  // chunk form: fp32 and bf16 results
};

inline std::vector<double> normal_values(std::size_t count, unsigned seed, Type type, double size = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& x : values) {
    x = static_cast<float>(size * normal(random));
    if (type == Type::bf16) x = round_bf16(static_cast<float>(x));
  }
  return values;
}

// What the chunk form sees of a layer: convolution, SiLU, norms and gates in fp64, rounded to what its inputs hold.
// Rows become sequences, also those without a slot (from a zero state and window).
inline kda::oracle::Problem chunk_problem(const StepCase& c, const Inputs& in) {
  const int H = c.heads, D = c.dim;
  const std::size_t width = static_cast<std::size_t>(H) * D, tokens = in.starts.back();
  const auto rounded = [&](double x) {
    return static_cast<double>(c.type == Type::fp32 ? static_cast<float>(x) : round_bf16(static_cast<float>(x)));
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  kda::oracle::Problem p;
  p.heads = H, p.dim = D, p.starts = in.starts, p.scale = 1 / std::sqrt(static_cast<double>(D));
  p.q.resize(tokens * width), p.k = p.v = p.g = p.q;
  p.state.assign(c.lengths.size() * width * D, 0.0);
  for (std::size_t row = 0; row < c.lengths.size(); ++row) {
    const int slot = c.slot_of[row];
    if (slot >= 0) std::copy_n(&in.state[slot * width * D], width * D, &p.state[row * width * D]);
    for (int t = 0; t < c.lengths[row]; ++t)
      for (int h = 0; h < H; ++h) {
        const std::size_t token = in.starts[row] + t, at = token * width + h * D;
        for (int which = 0; which < 3; ++which) {
          double* out = &(which == 0 ? p.q : which == 1 ? p.k : p.v)[at];
          double square = 1e-6;
          for (int d = 0; d < D; ++d) {
            double sum = 0;
            for (int i = 0; i < 4; ++i) {
              const int from = t - 3 + i;
              const std::size_t channel = h * D + d;
              const double past =
                  from >= 0 ? in.qkv[((token - 3 + i) * 3 + which) * width + channel]
                  : slot < 0
                      ? 0
                      : in.window[((static_cast<std::size_t>(slot) * 3 + from + 3) * 3 + which) * width + channel];
              sum += in.taps[((static_cast<std::size_t>(which) * H + h) * D + d) * 4 + i] * past;
            }
            out[d] = rounded(sum * sigmoid(sum));
            square += out[d] * out[d];
          }
          for (int d = 0; d < D && which < 2; ++d) out[d] = rounded(out[d] / std::sqrt(square));
        }
        for (int d = 0; d < D; ++d) {
          const double logit = in.z[at + d] + in.bias[h * D + d], speed = std::exp(in.a_log[h]);
          p.g[at + d] = static_cast<float>(c.lower_bound != 0 ? c.lower_bound * sigmoid(speed * logit)
                                                              : -speed * std::log1p(std::exp(logit)));
        }
        p.beta.push_back(static_cast<float>(sigmoid(in.b[token * H + h])));
      }
  }
  return p;
}

// States one by one, each against its own size: a large one that nobody touched must not hide the others.
inline bool compare_states(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                           std::size_t size, double limit) {
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t part = 0; part < want.size() / size; ++part) {
    double error = 0, square = 0;
    for (std::size_t i = part * size; i < (part + 1) * size; ++i)
      error += (got[i] - want[i]) * (got[i] - want[i]), square += want[i] * want[i];
    const double rms = std::sqrt(error / static_cast<double>(size)),
                 ratio = rms <= 1e-9 ? 0 : rms / std::sqrt(square / static_cast<double>(size));
    if (!(ratio <= worst)) worst = ratio, at = part;
  }
  const bool good = worst <= limit;
  if (!good || std::getenv("K3_VERBOSE"))
    std::printf("    %-14s %s worst rms ratio %.2e (limit %.0e) in state %zu\n", what.c_str(), good ? "ok  " : "FAIL",
                worst, limit, at);
  return good;
}
inline bool check_call(const Device& device, const Inputs& in, const Expected& want, double y_limit,
                       double state_limit) {
  const bool good = check_step(device, in, want, y_limit, state_limit);
  const std::size_t state = static_cast<std::size_t>(device.c.dim) * device.c.dim;
  return compare_states("states", widen(download<float>(device.state)), want.state, state, state_limit) && good;
}

inline bool check_layer_step(const StepCase& c, const Inputs& in, const LayerLimits& limits) {
  bool good = true;
  for (bool drafts : {false, true}) {
    StepCase call = c;
    if (drafts) call.commit.assign(c.lengths.size(), 0);
    Device device(call, in);
    REQUIRE_CUDA(kda::step(device.a, nullptr));
    synchronize();
    if (std::getenv("K3_VERBOSE")) std::printf("    step, %s\n", drafts ? "drafts" : "committed");
    good = check_call(device, in, oracle(call, in), limits.step_y, limits.step_state) && good;
  }
  return good;
}

inline bool check_layer_prefill(const StepCase& c, const Inputs& in, const Expected& want, const LayerLimits& limits) {
  if (c.dim != 128 || c.type != Type::bf16 || c.lower_bound == 0) return true;  // not a shape of the prefill
  if (!on_hopper_gpu()) return std::printf("    prefill skipped: needs sm_90\n"), true;
  const int longest = *std::max_element(c.lengths.begin(), c.lengths.end()), rows = static_cast<int>(c.lengths.size());
  bool good = true;
  for (const kda::PrefillOptions& options : {kda::PrefillOptions{.segments = 1}, kda::PrefillOptions{.segments = 3},
                                             kda::PrefillOptions{.state_blocks = 3},
                                             kda::PrefillOptions{.state_blocks = 2, .ranks = 2}}) {
    Device device(c, in);
    Buffer workspace(kda::prefill_workspace_bytes(longest, rows, c.heads, options));
    REQUIRE_CUDA(kda::prefill(device.a, longest, workspace.data(), nullptr, options));
    synchronize();
    if (std::getenv("K3_VERBOSE"))
      std::printf("    prefill, %d segments, %d state blocks of %d\n", options.segments, options.state_blocks,
                  options.ranks);
    good = check_call(device, in, want, limits.prefill_y, limits.prefill_state) && good;
  }
  return good;
}

inline bool check_layer_chunk(const StepCase& c, const Inputs& in, const LayerLimits& limits) {
  const kda::oracle::Problem p = chunk_problem(c, in);
  Case shape{c.name, c.heads, c.dim, c.lengths, c.type};
  const auto d_o = normal_values(p.v.size(), 17, c.type), d_final = normal_values(p.state.size(), 18, Type::fp32);
  Run run(shape, p, c.type, d_o, d_final);
  run.forward(kda::Keep::for_backward);
  run.backward(true);
  synchronize();
  if (std::getenv("K3_VERBOSE")) std::printf("    chunk\n");
  const kda::oracle::Result want = kda::oracle::forward(p);
  const kda::oracle::Gradients back = kda::oracle::backward(p, d_o, d_final);
  bool good = compare("o", read_rows(run.rows_o), want.o, limits.narrow);
  const std::size_t state = static_cast<std::size_t>(c.dim) * c.dim;
  good =
      compare_states("final states", widen(download<float>(run.final_state)), want.state, state, limits.wide) && good;
  good = compare("dq", read_rows(run.rows_dq), back.q, limits.narrow) && good;
  good = compare("dk", read_rows(run.rows_dk), back.k, limits.narrow) && good;
  good = compare("dv", read_rows(run.rows_dv), back.v, limits.dv) && good;
  good = compare("dg", read_rows(run.rows_dg), back.g, 2 * limits.wide) && good;
  good = compare("dbeta", read_rows(run.rows_dbeta), back.beta, limits.dbeta) && good;
  return compare_states("d states", widen(download<float>(run.d_state)), back.state, state, limits.wide) && good;
}

inline bool check_layer(const StepCase& c, const Inputs& in, const LayerLimits& limits = {}) {
  const Expected want = oracle(c, in);
  bool good = check_layer_step(c, in, limits);
  good = check_layer_prefill(c, in, want, limits) && good;
  return check_layer_chunk(c, in, limits) && good;
}

}  // namespace k3::cuda::testing
