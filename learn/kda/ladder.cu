// Runs every step on the same inputs, compares with the recurrence in fp64 and prints the times:
//   ladder         tests, then times at T 8192 H 96 (results of the timed run are checked too, two heads of them)
//   ladder --test  tests only
// Error of a step: root mean square of the difference over that of the exact result, of o and of the final state.
// Limits, with the largest errors seen. o is stored in bf16, which alone costs 1.7e-3: limit 2.5e-3. State: steps 1 to
// 4 compute in fp32, 2.4e-6 (the approximate exponential, slow gates), limit 1e-5; steps 5 and 6 round every operand to
// bf16 (2^-9), 3.8e-3 and 4.4e-3 of o, limits 6e-3; step 7 rounds to fp16 (2^-11), 4.8e-4, limit 1e-3.
// Times: CUDA events, the L2 flushed before each run, median. Floor: the 1540 bytes a token and head, and the states,
// at the rate of a device copy measured in the same run. Exit code 1 when a step misses its limit.
#include "ladder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels_cuda/gpu.h"
#include "kernels_cuda/kda_oracle.h"

namespace {

using namespace k3::learn::kda;
using namespace k3::cuda::testing;
namespace oracle = k3::cuda::kda::oracle;

std::size_t no_workspace(int, int) { return 0; }
bool everywhere() { return true; }
struct Step {
  const char* name;
  cudaError_t (*run)(const Arguments&, cudaStream_t);
  double limit_o, limit_state;
  std::size_t (*workspace_bytes)(int tokens, int heads) = no_workspace;
  bool (*available)() = everywhere;
};
const std::vector<Step> kSteps = {
    {"1 recurrence, state in memory", step1_recurrence, 2.5e-3, 1e-5},
    {"2 state in registers", step2_registers, 2.5e-3, 1e-5},
    {"3 loads in flight", step3_prefetch, 2.5e-3, 1e-5},
    {"4 chunks, fp32, plain loops", step4_chunk, 2.5e-3, 1e-5},
    {"5 chunks on tensor cores", step5_tensor_cores, 6e-3, 6e-3},
    {"6 factors apart from states", step6_two_kernels, 6e-3, 6e-3, step6_workspace_bytes},
#ifndef K3_CUDA_EMULATOR
    {"7 wgmma and TMA (library)", step7_hopper, 2.5e-3, 1e-3, step7_workspace_bytes, step7_available},
#endif
};

enum class Gate { any, slow, bound, mixed };  // g in (-5, 0); in (-0.01, 0); -5; half of the channels -5, half 0
struct Case {
  const char* name;
  int tokens, heads;
  Gate gate;
  bool same_keys = false;  // all keys near one direction, beta near 1: the hardest triangular systems
};

struct Inputs {
  int tokens, heads;
  std::vector<__nv_bfloat16> q, k, v;
  std::vector<float> g, beta, state;
};
Inputs make_inputs(const Case& c) {
  const std::size_t rows = static_cast<std::size_t>(c.tokens) * c.heads, count = rows * kDim;
  Inputs in{c.tokens, c.heads, std::vector<__nv_bfloat16>(count), {}, {}, std::vector<float>(count),
            std::vector<float>(rows), std::vector<float>(static_cast<std::size_t>(c.heads) * kDim * kDim)};
  in.k = in.v = in.q;
  std::uint64_t seed = 0x9e3779b97f4a7c15u + c.tokens;
  const auto uniform = [&] {  // in [-1, 1)
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return static_cast<float>(static_cast<std::int32_t>(seed >> 32)) * 0x1p-31f;
  };
  float x[kDim], direction[kDim];
  for (float& d : direction) d = uniform();
  const auto unit_row = [&](__nv_bfloat16* to, float own, float shared) {
    float square = 0;
    for (int i = 0; i < kDim; ++i) x[i] = own * uniform() + shared * direction[i], square += x[i] * x[i];
    for (int i = 0; i < kDim; ++i) to[i] = __float2bfloat16(x[i] / std::sqrt(square));
  };
  for (std::size_t row = 0; row < rows; ++row) {
    unit_row(&in.q[row * kDim], 1.f, 0.f);
    unit_row(&in.k[row * kDim], c.same_keys ? 0.3f : 1.f, c.same_keys ? 1.f : 0.f);
    for (int i = 0; i < kDim; ++i) {
      const float z = 0.5f * (uniform() - 1.f);  // in [-1, 0)
      in.v[row * kDim + i] = __float2bfloat16(uniform());
      in.g[row * kDim + i] = c.gate == Gate::any     ? 5.f * z
                             : c.gate == Gate::slow  ? 0.01f * z
                             : c.gate == Gate::bound ? -5.f
                                                     : (i % 2 ? -5.f : 0.f);
    }
    in.beta[row] = c.same_keys ? 0.9996f : 0.5f + 0.5f * uniform();
  }
  for (float& s : in.state) s = uniform();
  return in;
}

// The same heads, `wanted` of them, for the oracle; and those heads of results laid out like the inputs.
template <class T>
std::vector<double> pick(const std::vector<T>& all, int heads, const std::vector<int>& wanted, std::size_t width) {
  std::vector<double> out;
  for (std::size_t row = 0; row < all.size() / (heads * width); ++row)
    for (int head : wanted)
      for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<float>(all[(row * heads + head) * width + i]));
  return out;
}
double error_of(const std::vector<double>& exact, const std::vector<double>& found) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    difference += (found[i] - exact[i]) * (found[i] - exact[i]), size += exact[i] * exact[i];
  return std::sqrt(difference / size);
}

struct Device {
  Buffer q, k, v, g, beta, state, starts, o, state_out, workspace;
  Arguments a;
  explicit Device(const Inputs& in)
      : q(upload(in.q)), k(upload(in.k)), v(upload(in.v)), g(upload(in.g)), beta(upload(in.beta)),
        state(upload(in.state)), starts(upload(std::vector<int>{0, in.tokens})), o(q.bytes()),
        state_out(state.bytes()) {
    std::size_t most = 0;
    for (const Step& step : kSteps) most = std::max(most, step.workspace_bytes(in.tokens, in.heads));
    workspace = Buffer(most);
    a = {in.tokens, in.heads, q.as<__nv_bfloat16>(), k.as<__nv_bfloat16>(), v.as<__nv_bfloat16>(), g.as<float>(),
         beta.as<float>(), state.as<float>(), starts.as<int>(), 1 / std::sqrt(static_cast<float>(kDim)),
         o.as<__nv_bfloat16>(), state_out.as<float>(), workspace.data()};
  }
};

struct Errors {
  double o = 0, state = 0;
};
struct Check {  // inputs on the device and the exact results of some heads
  Inputs in;
  std::vector<int> heads;
  oracle::Result exact;
  Device device;
  Check(const Case& c, const std::vector<int>& checked) : in(make_inputs(c)), heads(checked), device(in) {
    oracle::Problem p;
    p.heads = static_cast<int>(heads.size()), p.dim = kDim, p.starts = {0, in.tokens};
    p.q = pick(in.q, in.heads, heads, kDim), p.k = pick(in.k, in.heads, heads, kDim);
    p.v = pick(in.v, in.heads, heads, kDim), p.g = pick(in.g, in.heads, heads, kDim);
    p.beta = pick(in.beta, in.heads, heads, 1), p.state = pick(in.state, in.heads, heads, kDim * kDim);
    p.scale = device.a.scale;
    exact = oracle::forward(p);
  }
  Errors run(const Step& step) {
    device.o.poison(), device.state_out.poison(), device.workspace.poison();
    REQUIRE_CUDA(step.run(device.a, nullptr));
    synchronize();
    return {error_of(exact.o, pick(download<__nv_bfloat16>(device.o), in.heads, heads, kDim)),
            error_of(exact.state, pick(download<float>(device.state_out), in.heads, heads, kDim * kDim))};
  }
};

bool report(const Step& step, const std::string& where, const Errors& e) {
  const bool good = e.o <= step.limit_o && e.state <= step.limit_state;  // false for NaN
  std::printf("%-30s %-24s o %.1e (limit %.1e)  state %.1e (limit %.1e)%s\n", step.name, where.c_str(), e.o,
              step.limit_o, e.state, step.limit_state, good ? "" : "  FAILED");
  std::fflush(stdout);
  return good;
}

bool run_tests() {
  const Case cases[] = {{"1 token", 1, 1, Gate::any},         {"33 tokens", 33, 3, Gate::any},
                        {"70 tokens, slow", 70, 2, Gate::slow}, {"64 tokens, bound", 64, 2, Gate::bound},
                        {"95 tokens, mixed", 95, 1, Gate::mixed},
#ifndef K3_CUDA_EMULATOR
                        {"1000 tokens, slow", 1000, 2, Gate::slow},
#endif
                        {"129 tokens, same keys", 129, 1, Gate::slow, true}};
  bool good = true;
  for (const Case& c : cases) {
    std::vector<int> heads(c.heads);
    for (int i = 0; i < c.heads; ++i) heads[i] = i;
    Check check(c, heads);
    for (const Step& step : kSteps)
      if (step.available()) good &= report(step, c.name, check.run(step));
  }
  return good;
}

#ifndef K3_CUDA_EMULATOR
template <class Run>
double median_us(Run run) {
  static const Buffer flush(std::size_t{128} << 20);  // more than any L2
  cudaEvent_t begin, end;
  REQUIRE_CUDA(cudaEventCreate(&begin));
  REQUIRE_CUDA(cudaEventCreate(&end));
  std::vector<float> times;
  for (float spent = 0; times.size() < 51 && (times.size() < 5 || spent < 500);) {
    REQUIRE_CUDA(cudaMemsetAsync(flush.data(), 0, flush.bytes()));
    REQUIRE_CUDA(cudaEventRecord(begin));
    run();
    REQUIRE_CUDA(cudaEventRecord(end));
    REQUIRE_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    REQUIRE_CUDA(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms), spent += ms;
  }
  REQUIRE_CUDA(cudaEventDestroy(begin));
  REQUIRE_CUDA(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3;
}

bool run_times() {
  const Case c{"T 8192 H 96", 8192, 96, Gate::any};
  Check check(c, {0, 95});
  const double bytes = 1540.0 * c.tokens * c.heads + 2.0 * check.device.state.bytes();
  double rate;  // bytes a microsecond, read and written
  {
    const std::size_t half = std::size_t{1} << 30;
    const Buffer copy(2 * half);
    rate = 2.0 * half / median_us([&] {
             REQUIRE_CUDA(cudaMemcpyAsync(copy.data(), copy.as<char>() + half, half, cudaMemcpyDeviceToDevice));
           });
  }
  const double floor = bytes / rate;
  bool good = true;
  std::string table;
  for (const Step& step : kSteps) {
    char line[160];
    if (!step.available()) {
      std::snprintf(line, sizeof line, "| %-30s | not on this GPU: no wgmma | | |\n", step.name);
    } else {
      good &= report(step, c.name, check.run(step));
      const double us = median_us([&] { REQUIRE_CUDA(step.run(check.device.a, nullptr)); });
      std::snprintf(line, sizeof line, "| %-30s | %9.1f | %8.1f | %6.1f |\n", step.name, us, floor, us / floor);
    }
    table += line;
  }
  cudaDeviceProp gpu;
  REQUIRE_CUDA(cudaGetDeviceProperties(&gpu, 0));
  std::printf("\n%s, T %d H %d D %d, floor %.2f GB at %.2f TB/s\n\n", gpu.name, c.tokens, c.heads, kDim, bytes * 1e-9,
              rate * 1e-6);
  std::printf("| %-30s | %9s | %8s | %6s |\n|---|---|---|---|\n%s", "step", "us", "floor us", "ratio", table.c_str());
  return good;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const bool test_only = argc == 2 && std::strcmp(argv[1], "--test") == 0;
  if (argc > 1 && !test_only) return std::fprintf(stderr, "usage: ladder [--test]\n"), 2;
  bool good = run_tests();
#ifndef K3_CUDA_EMULATOR
  if (!test_only) good &= run_times();
#endif
  return good ? 0 : 1;
}
