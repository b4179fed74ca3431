// The hostile inputs of kernels.md 7.2 and the public KDA bugs of 7.3 as inputs of one layer, through all families of
// kernels (layer_cases.h). Which property stands where: README.md.
#include <functional>

#include "kernels_cuda/layer_cases.h"
#include "kernels_cuda/test.h"

namespace k3::cuda::testing {
namespace {

using Change = std::function<void(const StepCase&, Inputs&)>;

// Rows of many lengths, slots permuted, one row without a slot, one slot without a row.
StepCase rows_of(int dim, Type type) { return {"", 2, dim, 7, type, {130, 1, 0, 64, 17, 2}, {5, 0, 3, 6, 1, -1}, {}}; }
bool layer_case(StepCase c, const Change& change, const LayerLimits& limits = {}) {
  Inputs in = make_inputs(c, 11);
  change(c, in);
  return check_layer(c, in, limits);
}

// The part of q (0), k (1) or v (2) of a token, head and channel in the raw projections.
template <class F>
void each_raw(const StepCase& c, Inputs& in, int which, F change) {
  const std::size_t width = static_cast<std::size_t>(c.heads) * c.dim;
  for (std::size_t i = 0; i < in.qkv.size() / (3 * width); ++i)
    for (std::size_t d = 0; d < width; ++d) {
      double& x = in.qkv[(3 * i + which) * width + d];
      x = round_bf16(static_cast<float>(change(i, d, x)));
    }
}
void only_current_tap(Inputs& in) {
  for (std::size_t i = 0; i < in.taps.size(); ++i) in.taps[i] = i % 4 == 3;
}
void set(std::vector<double>& values, double x) { std::fill(values.begin(), values.end(), x); }
// Decay logits (bias zero, speed one) by channel.
template <class F>
void set_logits(const StepCase& c, Inputs& in, F logit) {
  set(in.bias, 0), set(in.a_log, 0);
  for (std::size_t i = 0; i < in.z.size(); ++i)
    in.z[i] = logit(static_cast<int>(i / c.dim % c.heads), static_cast<int>(i % c.dim));
}

// The error of a state as a factor: 1 - <got, want> / <want, want>. Rounding of single operands averages out of it, a
// rounded decay or beta does not.
bool unbiased(const char* what, const std::vector<double>& got, const std::vector<double>& want, double limit) {
  double product = 0, square = 0;
  for (std::size_t i = 0; i < want.size(); ++i) product += got[i] * want[i], square += want[i] * want[i];
  const double bias = 1 - product / square;
  const bool good = std::abs(bias) <= limit;
  if (!good || std::getenv("K3_VERBOSE"))
    std::printf("    %s %s: bias %.2e (limit %.0e)\n", what, good ? "ok" : "FAIL", bias, limit);
  return good;
}
// States after `c` from the step, the prefill and the chunk form.
bool bias_case(const StepCase& c, const Inputs& in, double limit, double prefill_limit) {
  const Expected want = oracle(c, in);
  Device step(c, in), prefill(c, in);
  REQUIRE_CUDA(kda::step(step.a, nullptr));
  synchronize();
  bool good = unbiased("step", widen(download<float>(step.state)), want.state, limit);
  if (on_hopper_gpu()) {
    const int longest = step.a.longest, rows = step.a.rows;
    Buffer workspace(kda::prefill_workspace_bytes(longest, rows, c.heads));
    REQUIRE_CUDA(kda::prefill(prefill.a, longest, workspace.data(), nullptr));
    synchronize();
    good = unbiased("prefill", widen(download<float>(prefill.state)), want.state, prefill_limit) && good;
  }
  const kda::oracle::Problem p = chunk_problem(c, in);
  Run run({"", c.heads, c.dim, c.lengths, c.type}, p, Type::fp32, p.v, p.state);
  run.forward(kda::Keep::nothing);
  synchronize();
  return unbiased("chunk", widen(download<float>(run.final_state)), kda::oracle::forward(p).state, limit) && good;
}

// vmlx 433: decays of 0.9985 become 1 in bf16; cuDNN 916: in fp16 they lose 3e-4 a chunk. Values are zero, so that a
// large entry state only decays: 0.9985^600 = 0.41.
bool slow_decay_case() {
  const StepCase c{"", 2, 128, 1, Type::bf16, {600}, {0}, {}};
  Inputs in = make_inputs(c, 12);
  set_logits(c, in, [](int, int) { return -8.125; });  // 5 sigmoid = 1.5e-3
  set(in.b, -200);
  for (double& x : in.state) x *= 1e3;
  return bias_case(c, in, 2e-4, 2e-4);
}
// vLLM 53877, SGLang 38975: sigmoid(beta) through bf16. Logits whose sigmoid lies near the middle between two bf16
// numbers; rows of one token, states from zero, so that S = beta k v^T. Step and chunk form must not show it. In the
// prefill beta is a factor of a bf16 operand, T diag(beta): here 2^-8 of 0.5, and 2^-11 for the tanh of its SiLU.
bool beta_rounding_case() {
  StepCase c{"", 4, 128, 16, Type::bf16, std::vector<int>(16, 1), {}, {}};
  for (int i = 0; i < 16; ++i) c.slot_of.push_back(15 - i);
  Inputs in = make_inputs(c, 13);
  set(in.state, 0);
  double worst = 0, logit = 0;
  for (double x = -1; x < 1; x += 1. / 512) {
    const double rounded = round_bf16(static_cast<float>(x)), beta = 1 / (1 + std::exp(-rounded)),
                 error = 1 - round_bf16(static_cast<float>(beta)) / beta;
    if (std::abs(error) > std::abs(worst)) worst = error, logit = rounded;
  }
  set(in.b, logit);
  if (std::abs(worst) < 3.5e-3) return std::printf("    FAIL no logit shows the rounding\n"), false;
  return bias_case(c, in, 2e-4, 4.3e-3);
}

// ik_llama clamps states at 1e6 and gates at -50: a softplus gate of -60 on a state of 1e25.
bool clamp_case() {
  const StepCase c{"", 2, 128, 1, Type::fp32, {1}, {0}, {}, 0};
  Inputs in = make_inputs(c, 14);
  set_logits(c, in, [](int, int) { return 60.; });
  set(in.b, -200);
  for (double& x : in.state) x = static_cast<float>(1e25 * x);
  const Expected want = oracle(c, in);
  Device device(c, in);
  REQUIRE_CUDA(kda::step(device.a, nullptr));
  synchronize();
  return check_step(device, in, want, 1e-4, 1e-4);  // e^-60 in fp32: 60 x 2^-24
}

// FlashKDA's suite: logits x bias.
bool gate_grid_case(int bias) {
  bool good = true;
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(-8, 8);
  for (int kind = 0; kind < 6; ++kind) {
    StepCase c{"", 2, 128, 3, Type::bf16, {130, 17}, {2, 0}, {}};
    Inputs in = make_inputs(c, 15 + kind);
    set_logits(c, in, [&](int, int) {
      const double flat[] = {-8, -4, 0, 8};
      return round_bf16(static_cast<float>(kind < 4 ? flat[kind] : kind == 4 ? uniform(random) : 8 * normal(random)));
    });
    for (double& x : in.bias) x = bias ? static_cast<float>(normal(random)) : 0;
    if (std::getenv("K3_VERBOSE")) std::printf("  logits %d\n", kind);
    good = check_layer(c, in) && good;
  }
  return good;
}

// Neumann inverses lose everything here after some thousand tokens: identical keys, no decay, beta near 1, 16384
// tokens.
bool same_keys_case(int length) {
  const StepCase c{"", 1, 128, 1, Type::bf16, {length}, {0}, {}};
  Inputs in = make_inputs(c, 16);
  set_logits(c, in, [](int, int) { return -12.; });
  set(in.b, 8);
  only_current_tap(in);
  const std::vector<double> first(in.qkv.begin() + c.dim, in.qkv.begin() + 2 * c.dim);
  each_raw(c, in, 1, [&](std::size_t, std::size_t d, double) { return first[d]; });
  const Expected want = oracle(c, in);
  const LayerLimits limits;
  bool good = check_layer_prefill(c, in, want, limits);
  const kda::oracle::Problem p = chunk_problem(c, in);
  Run run({"", 1, 128, c.lengths, c.type}, p, c.type, p.v, p.state);
  run.forward(kda::Keep::nothing);
  synchronize();
  const kda::oracle::Result result = kda::oracle::forward(p);
  good = compare("chunk o", read_rows(run.rows_o), result.o, limits.narrow) && good;
  return compare("chunk state", widen(download<float>(run.final_state)), result.state, limits.wide) && good;
}

}  // namespace

void add_extreme_tests(std::vector<Test>& all) {
  const auto add = [&](const std::string& name, const Change& change, const LayerLimits& limits = {}) {
    all.push_back({"layer-" + name, false, [=] { return layer_case(rows_of(128, Type::bf16), change, limits); }});
  };
  add("random", [](const StepCase&, Inputs&) {});
  all.push_back({"layer-small", true, [] {  // for the emulator and compute-sanitizer
                   return layer_case({"", 1, 128, 4, Type::bf16, {66, 1, 0, 17}, {2, 0, 1, 3}, {}},
                                     [](const StepCase&, Inputs&) {});
                 }});
  all.push_back({"layer-small-d64", true, [] {
                   return layer_case({"", 1, 64, 4, Type::bf16, {66, 1, 0, 17}, {2, 0, 1, 3}, {}},
                                     [](const StepCase&, Inputs&) {});
                 }});
  add("all-bound", [](const StepCase& c, Inputs& in) { set_logits(c, in, [](int, int) { return 40.; }); });
  add("half-bound",
      [](const StepCase& c, Inputs& in) { set_logits(c, in, [](int, int d) { return d % 2 ? 40. : -40.; }); });
  add("split-heads", [](const StepCase& c, Inputs& in) {  // fla 781
    set_logits(c, in, [](int h, int) { return h ? 40. : -40.; });
  });
  add("same-keys",
      [](const StepCase& c, Inputs& in) {
        set_logits(c, in, [](int, int) { return -12.; });
        set(in.b, 8), only_current_tap(in);
        const std::vector<double> first(in.qkv.begin() + c.heads * c.dim, in.qkv.begin() + 2 * c.heads * c.dim);
        each_raw(c, in, 1, [&](std::size_t, std::size_t d, double) { return first[d]; });
      },
      {4e-3, 2e-3, 8e-3, 7e-3, 1.5e-3, 3.5e-3, 8e-3, 5e-3});
  add("far-keys", [](const StepCase& c, Inputs& in) {  // fla: keys of N(-50, 10); the tap turns them, SiLU keeps them
    for (std::size_t i = 0; i < in.taps.size(); ++i) in.taps[i] = i % 4 == 3 ? -1 : 0;
    each_raw(c, in, 1, [&](std::size_t, std::size_t, double x) { return 10 * x - 50; });
  });
  add("beta-ends", [](const StepCase&, Inputs& in) {  // exactly 0 and 1
    for (std::size_t i = 0; i < in.b.size(); ++i) in.b[i] = i % 3 == 1 ? -200 : 200;
  });
  add("zero-rows", [](const StepCase& c, Inputs& in) {  // q and k rows of zeros: eps of the norm
    only_current_tap(in);
    for (int which : {0, 1})
      each_raw(c, in, which, [&](std::size_t i, std::size_t, double x) { return i % 5 == 2 ? 0 : x; });
  });
  add("huge-rows", [](const StepCase& c, Inputs& in) {
    for (int which : {0, 1}) each_raw(c, in, which, [&](std::size_t, std::size_t, double x) { return 1e4 * x; });
  });
  add("denormal-values", [](const StepCase& c, Inputs& in) {
    only_current_tap(in);
    each_raw(c, in, 2, [&](std::size_t i, std::size_t, double x) { return i % 2 ? 1e-39 * x : x; });
  });
  add("large-state", [](const StepCase&, Inputs& in) {
    for (double& x : in.state) x = static_cast<float>(1e3 * x);
  });
  add("immense-state", [](const StepCase& c, Inputs& in) {  // states and values beyond a clamp at 1e6
    for (double& x : in.state) x = static_cast<float>(1e7 * x);
    each_raw(c, in, 2, [&](std::size_t, std::size_t, double x) { return 1e7 * x; });
    for (std::size_t i = 0; i < in.window.size(); ++i)
      if (i / (c.heads * c.dim) % 3 == 2) in.window[i] = round_bf16(static_cast<float>(1e7 * in.window[i]));
  });
  for (int bias : {0, 1})
    all.push_back(
        {std::string("layer-gates-") + (bias ? "bias" : "plain"), false, [=] { return gate_grid_case(bias); }});
  all.push_back({"same-keys-16384", false, [] { return same_keys_case(16384); }});
  all.push_back({"slow-decay", true, slow_decay_case});
  all.push_back({"beta-rounding", false, beta_rounding_case});
  all.push_back({"no-clamp", true, clamp_case});
  all.push_back({"prefill-refusals", true, [] {  // cuDNN sm90 ran its 128-only kernel on other shapes
                   const StepCase c{"", 1, 128, 1, Type::bf16, {4}, {0}, {}};
                   const Inputs in = make_inputs(c, 1);
                   Device device(c, in);
                   Buffer workspace(kda::prefill_workspace_bytes(4, 1, 1));
                   const auto refuses = [&](auto change) {
                     kda::StepArguments a = device.a;
                     change(a);
                     return kda::prefill(a, 4, workspace.data(), nullptr) == cudaErrorInvalidValue;
                   };
                   return refuses([](auto& a) { a.dim = 64; }) && refuses([](auto& a) { a.type = Type::fp32; }) &&
                          refuses([](auto& a) { a.lower_bound = 0; }) && refuses([](auto& a) { a.lower_bound = -6; }) &&
                          refuses([](auto& a) { a.commit = a.slots; }) && refuses([](auto& a) { a.slots = nullptr; }) &&
                          refuses([](auto& a) { a.q.token_stride += 2; });
                 }});
}

}  // namespace k3::cuda::testing
