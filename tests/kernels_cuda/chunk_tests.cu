// The chunk forms, forward and backward, against the fp64 oracle: bf16 inputs of dim 64 and 128 run the fp16 form where
// the device has it, everything else the plain one.
#include "kernels_cuda/kda_cases.h"
#include "kernels_cuda/test.h"

namespace k3::cuda::testing {
namespace {

using Lengths = std::vector<int>;

std::vector<double> random_values(std::size_t count, unsigned seed, Type type, double size = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& x : values)
    x = type == Type::fp32 ? static_cast<float>(size * normal(random))
                           : round_bf16(static_cast<float>(size * normal(random)));
  return values;
}

// Limits: fp32 inputs keep 2^-21 operands; bf16 inputs mean operands of 2^-11 (tf32, fp16; about 3e-4) and, for q, k, v
// gradients and o, a bf16 result.
// Identical keys with decay ~ 1 and beta ~ 1 cancel: X = T^T dR is a difference of neighbours, 1/50 of dR, and k^T dS a
// sum of 1e-2 to 3e-4 of its terms. Rounding the operands of these products to tf32 in an fp64 model moves dbeta by
// 4e-3 .. 7e-3 (dim 32), 2e-3 .. 1.1e-2 (64) and 5e-3 .. 2.5e-2 (128) over six seeds, rounding q, k, v to bf16 alone by as
// much; chunks of 64 tokens double the sums. fp32 inputs keep their limits there.
struct Limits {
  double wide, narrow, dv, dbeta;
};
Limits limits_of(const Case& c) {
  if (c.type == Type::fp32) return {3e-5, 3e-5, 3e-5, 6e-5};
  return c.keys == Keys::same ? Limits{1.5e-3, 3.5e-3, 1e-2, 4e-2} : Limits{1.5e-3, 3.5e-3, 3.5e-3, 3e-3};
}

bool check_forward(Run& run, const kda::oracle::Result& want) {
  const Limits limits = limits_of(run.c);
  bool good = compare("o", read_rows(run.rows_o), want.o, run.output_type == Type::fp32 ? limits.wide : limits.narrow);
  return compare("final state", widen(download<float>(run.final_state)), want.state, limits.wide) && good;
}
bool check_backward(Run& run, const kda::oracle::Gradients& want) {
  const Limits limits = limits_of(run.c);
  bool good = compare("dq", read_rows(run.rows_dq), want.q, limits.narrow);
  good = compare("dk", read_rows(run.rows_dk), want.k, limits.narrow) && good;
  good = compare("dv", read_rows(run.rows_dv), want.v, limits.dv) && good;
  good = compare("dg", read_rows(run.rows_dg), want.g, 2 * limits.wide) && good;
  good = compare("dbeta", read_rows(run.rows_dbeta), want.beta, limits.dbeta) && good;
  return compare("d state", widen(download<float>(run.d_state)), want.state, limits.wide) && good;
}

bool chunk_case(const Case& c, Type output_type) {
  const kda::oracle::Problem p = make_problem(c);
  const std::vector<double> d_o = random_values(p.v.size(), 7, output_type, c.gradient_size),
                            d_final = random_values(p.state.size(), 8, Type::fp32, c.gradient_size);
  const kda::oracle::Result want = kda::oracle::forward(p);
  const kda::oracle::Gradients gradients = kda::oracle::backward(p, d_o, d_final);
  Run run(c, p, output_type, d_o, d_final);
  run.forward(kda::Keep::for_backward);
  synchronize();
  bool good = check_forward(run, want);
  run.backward(true);
  synchronize();
  good = check_backward(run, gradients) && good;
  const auto first = run.outputs();
  run.poison_outputs();  // and once more, backward computing everything itself: the same bits
  run.forward(kda::Keep::nothing);
  run.workspace.poison();
  run.backward(false);
  synchronize();
  if (run.outputs() != first) std::printf("    FAIL second run differs from the first\n"), good = false;
  return good;
}

}  // namespace

void add_chunk_tests(std::vector<Test>& all) {
  const auto add = [&](const Case& c, bool small, Type output_type = Type::fp32) {
    all.push_back({c.name, small, [=] { return chunk_case(c, output_type); }});
  };
  // The oracle's adjoint against central differences of its forward.
  all.push_back({"oracle", true, [] {
                   const Case c{"", 2, 4, {5, 0, 3}};
                   kda::oracle::Problem p = make_problem(c);
                   const auto d_o = random_values(p.v.size(), 3, Type::fp32),
                              d_final = random_values(p.state.size(), 4, Type::fp32);
                   const auto loss = [&] {
                     const auto r = kda::oracle::forward(p);
                     double sum = 0;
                     for (std::size_t i = 0; i < d_o.size(); ++i) sum += r.o[i] * d_o[i];
                     for (std::size_t i = 0; i < d_final.size(); ++i) sum += r.state[i] * d_final[i];
                     return sum;
                   };
                   const auto gradients = kda::oracle::backward(p, d_o, d_final);
                   const auto numeric = [&](std::vector<double>& x) {
                     std::vector<double> out(x.size());
                     for (std::size_t i = 0; i < x.size(); ++i) {
                       const double keep = x[i], step = 1e-5;
                       x[i] = keep + step;
                       const double up = loss();
                       x[i] = keep - step;
                       out[i] = (up - loss()) / (2 * step);
                       x[i] = keep;
                     }
                     return out;
                   };
                   bool good = compare("dq", gradients.q, numeric(p.q), 1e-7);
                   good = compare("dk", gradients.k, numeric(p.k), 1e-7) && good;
                   good = compare("dv", gradients.v, numeric(p.v), 1e-7) && good;
                   good = compare("dg", gradients.g, numeric(p.g), 1e-7) && good;
                   good = compare("dbeta", gradients.beta, numeric(p.beta), 1e-7) && good;
                   return compare("d state", gradients.state, numeric(p.state), 1e-7) && good;
                 }});
  for (int dim : {32, 64, 128})
    for (Type type : {Type::fp32, Type::bf16}) {
      const std::string tag = "-d" + std::to_string(dim) + (type == Type::fp32 ? "-fp32" : "-bf16");
      const auto with = [&](const std::string& name, Lengths lengths, Gate gate, Keys keys = Keys::random,
                            Beta beta = Beta::random) {
        return Case{name + tag, 2, dim, lengths, type, gate, keys, beta};
      };
      add(with("short", {37, 0, 1, 32}, Gate::moderate), true);
      Case packed = with("packed", {5, 33, 64}, Gate::moderate);
      packed.packed = true, packed.initial_state = false, packed.heads = 3;
      add(packed, true, type);
      add(with("lengths", {1, 2, 15, 16, 17, 0, 31, 33, 37, 63, 64, 65, 97, 127, 0, 1, 1}, Gate::moderate), false);
      add(with("bound", {150}, Gate::bound), dim == 32);
      add(with("half", {150, 40}, Gate::half), dim == 32);
      add(with("deep", {150, 40}, Gate::deep), dim == 32);
      add(with("mixed-heads", {150, 40}, Gate::mixed_heads), dim == 32);
      add(with("same-keys", {300}, Gate::flat, Keys::same, Beta::near_one), false);
      add(with("correlated-keys", {300}, Gate::flat, Keys::correlated, Beta::near_one), false);
      add(with("zero-rows", {70, 3}, Gate::moderate, Keys::with_zeros, Beta::zero), dim == 32);
      add(with("beta-one", {70, 3}, Gate::moderate, Keys::random, Beta::one), false);
      Case large = with("large-state", {100}, Gate::flat);
      large.state_size = 1e3;
      add(large, false);
      Case scaled = with("large-values", {100, 3}, Gate::moderate);  // beyond fp16
      scaled.value_size = scaled.state_size = 1e5, scaled.gradient_size = 1e4;
      add(scaled, false);
      scaled = with("small-gradients", {100, 3}, Gate::moderate);  // below fp16
      scaled.value_size = 1e3, scaled.gradient_size = 1e-6;
      add(scaled, false, type);
      add(with("long", {1000}, Gate::flat), false);
      Case many = with("many-sequences", Lengths(700, 3), Gate::moderate);
      many.heads = 1;
      add(many, false);
    }
  all.push_back({"empty", true, [] { return chunk_case({"empty", 2, 32, {0, 0}}, Type::fp32); }});
  all.push_back({"refusals", true, [] {
                   const Case c{"", 2, 32, {4}};
                   const auto p = make_problem(c);
                   Run run(c, p, Type::fp32, p.v, p.state);
                   run.forward(kda::Keep::nothing);
                   const auto refuses = [&](auto change) {
                     kda::ForwardInputs in = run.in;
                     kda::ForwardOutputs out = run.out;
                     change(in, out);
                     return kda::forward(in, out, kda::Keep::nothing, run.workspace.data(), nullptr) ==
                            cudaErrorInvalidValue;
                   };
                   return refuses([](auto& in, auto&) { in.shape.dim = 48; }) &&
                          refuses([](auto& in, auto&) { in.q.token_stride = 65; }) &&
                          refuses([](auto& in, auto&) { in.starts = nullptr; }) &&
                          refuses([](auto& in, auto&) { in.shape.tokens = -1; }) &&
                          refuses([](auto&, auto& out) { out.o.data = nullptr; });
                 }});
  all.push_back({"paths", true, [] {
                   const auto path = [](int dim, Type type) { return kda::chunk_path({4, 1, 2, dim}, type); };
                   const kda::ChunkPath narrow = path(64, Type::bf16);
                   std::printf("    bf16, dim 64 and 128: %s\n", narrow == kda::ChunkPath::hopper ? "hopper" : "plain");
                   return narrow == path(128, Type::bf16) && path(32, Type::bf16) == kda::ChunkPath::plain &&
                          path(64, Type::fp32) == kda::ChunkPath::plain &&
                          path(128, Type::fp32) == kda::ChunkPath::plain;
                 }});
#ifndef K3_CUDA_EMULATOR
  all.push_back({"repeat-100", false, [] {
                   const Case c{"", 4, 64, {700, 33, 1, 290}, Type::bf16};
                   const auto p = make_problem(c);
                   Run run(c, p, Type::bf16, random_values(p.v.size(), 7, Type::bf16),
                           random_values(p.state.size(), 8, Type::fp32));
                   run.forward(kda::Keep::for_backward);
                   run.backward(true);
                   synchronize();
                   const auto first = run.outputs();
                   for (int i = 0; i < 100; ++i) {
                     run.poison_outputs();
                     run.forward(kda::Keep::for_backward);
                     run.backward(true);
                     synchronize();
                     if (run.outputs() != first) return std::printf("    FAIL run %d differs\n", i), false;
                   }
                   return true;
                 }});
  all.push_back({"two-streams", false, [] {
                   const Case c{"", 4, 64, {900, 33, 1, 290}, Type::bf16};
                   const auto p1 = make_problem(c, 1), p2 = make_problem(c, 2);
                   const auto d_o = random_values(p1.v.size(), 7, Type::bf16),
                              d_final = random_values(p1.state.size(), 8, Type::fp32);
                   Run one(c, p1, Type::bf16, d_o, d_final), two(c, p2, Type::bf16, d_o, d_final);
                   const auto alone = [&](Run& run) {
                     run.forward(kda::Keep::for_backward), run.backward(true), synchronize();
                     auto bytes = run.outputs();
                     run.poison_outputs();
                     return bytes;
                   };
                   const auto first = alone(one), second = alone(two);
                   cudaStream_t left, right;
                   REQUIRE_CUDA(cudaStreamCreate(&left));
                   REQUIRE_CUDA(cudaStreamCreate(&right));
                   for (int i = 0; i < 20; ++i) {
                     one.forward(kda::Keep::for_backward, left), two.forward(kda::Keep::for_backward, right);
                     one.backward(true, left), two.backward(true, right);
                   }
                   synchronize();
                   return one.outputs() == first && two.outputs() == second;
                 }});
  all.push_back({"graph", false, [] {
                   const Case c{"", 4, 64, {900, 33, 1, 290}, Type::bf16};
                   const auto p = make_problem(c, 1);
                   Run run(c, p, Type::bf16, random_values(p.v.size(), 7, Type::bf16),
                           random_values(p.state.size(), 8, Type::fp32));
                   run.forward(kda::Keep::for_backward), run.backward(true), synchronize();
                   const auto first = run.outputs();
                   cudaStream_t stream;
                   cudaGraph_t graph;
                   cudaGraphExec_t executable;
                   REQUIRE_CUDA(cudaStreamCreate(&stream));
                   REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
                   run.forward(kda::Keep::for_backward, stream), run.backward(true, stream);
                   REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
                   REQUIRE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
                   run.poison_outputs();
                   REQUIRE_CUDA(cudaGraphLaunch(executable, stream));
                   synchronize();
                   return run.outputs() == first;
                 }});
#endif
}
}  // namespace k3::cuda::testing
