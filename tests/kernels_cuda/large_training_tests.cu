// The chunk form, forward and backward, on tensors of more than 2^31 elements. Sequences in front, in the middle and at
// the end are computed once as part of the whole and once alone, with pointers that start at them; both must have the
// same bits. Too little memory: says so.
#include "kernels_cuda/test.h"
#ifndef K3_CUDA_EMULATOR
#include "kernels_cuda/large.h"
#endif

namespace k3::cuda::testing {

#ifdef K3_CUDA_EMULATOR
void add_large_training_tests(std::vector<Test>&) {}
#else
namespace {

// Four tensors in one, [tokens, heads, 4, 128], so that each reaches behind element 2^31: q, k, v, d_o | o, dv, dq, dk
// in bf16, g, dg and two unused ones in fp32. 2^22 token-heads keep 4.9e9 bytes of records in the workspace.
bool training_case() {
  constexpr int kHeads = 4, kDim = 128, kLength = 8192;
  constexpr std::int64_t kPlain = std::int64_t{1} << 20, kTail = 200, kTokens = kPlain + kTail,
                         kToken = kHeads * 4 * kDim;
  static_assert(kPlain * kToken >= (std::int64_t{1} << 31));
  std::vector<int> starts;
  for (std::int64_t t = 0; t <= kPlain; t += kLength) starts.push_back(static_cast<int>(t));
  starts.push_back(static_cast<int>(kTokens));
  const int sequences = static_cast<int>(starts.size()) - 1;
  const kda::Shape shape{kTokens, sequences, kHeads, kDim};
  const std::size_t count = static_cast<std::size_t>(kTokens) * kToken,
                    kept = kda::forward_workspace_bytes(shape, kda::Keep::for_backward),
                    scratch = kda::backward_workspace_bytes(shape, true);
  const std::size_t states = static_cast<std::size_t>(sequences) * kHeads * kDim * kDim;
  if (!enough_memory(count * (2 * 2 + 4) + kept + scratch + 4 * states * 4)) return true;
  Buffer inputs(count * 2), outputs(count * 2), g(count * 4), beta(kTokens * kHeads * 4), dbeta(kTokens * kHeads * 4),
      state(states * 4), final_state(states * 4), d_state(states * 4), work(kept), more(scratch),
      places = upload(starts);
  // |q|, |k| <= 1: 128 values of at most 0.088.
  fill<__nv_bfloat16>(inputs, 1, Fill::rows, 0.088f), fill<float>(g, 3, Fill::decays);
  fill<float>(beta, 4, Fill::fractions), fill<float>(state, 5);

  struct Outputs {
    void *o, *dv, *dq, *dk;
    float *dg, *dbeta, *final_state, *d_state;
    std::int64_t token, dg_token;
  };
  const auto run = [&](std::int64_t first, const kda::Shape& part, const std::int32_t* part_starts, int sequence,
                       const Outputs& to, void* forward_work, void* backward_work) {
    const std::int64_t at = first * kToken;
    const auto input = [&](int which) {
      return kda::Rows{inputs.as<__nv_bfloat16>() + at + which * kDim, kToken, 4 * kDim};
    };
    kda::BackwardArguments a;
    kda::ForwardInputs& in = a.inputs;
    in.shape = part, in.q = input(0), in.k = input(1), in.v = input(2), a.d_o = input(3);
    in.g = {g.as<float>() + at, kToken, 4 * kDim}, in.beta = {beta.as<float>() + first * kHeads, kHeads, 1};
    in.starts = part_starts, in.initial_state = state.as<float>() + std::int64_t{sequence} * kHeads * kDim * kDim;
    in.scale = 0.08838835f;
    const std::int64_t head = to.token / kHeads;
    REQUIRE_CUDA(kda::forward(in, {Type::bf16, {to.o, to.token, head}, to.final_state}, kda::Keep::for_backward,
                              forward_work, nullptr));
    a.kept = forward_work, a.dq = {to.dq, to.token, head}, a.dk = {to.dk, to.token, head},
    a.dv = {to.dv, to.token, head};
    a.dg = {to.dg, to.dg_token, to.dg_token / kHeads}, a.dbeta = {to.dbeta, kHeads, 1};
    a.d_final_state = in.initial_state, a.d_initial_state = to.d_state;
    REQUIRE_CUDA(kda::backward(a, backward_work, nullptr));
    synchronize();
  };
  auto* out = outputs.as<__nv_bfloat16>();
  run(0, shape, places.as<std::int32_t>(), 0,
      {out, out + kDim, out + 2 * kDim, out + 3 * kDim, g.as<float>() + kDim, dbeta.as<float>(),
       final_state.as<float>(), d_state.as<float>(), kToken, kToken},
      work.data(), more.data());
  bool good = finite<__nv_bfloat16>("o, dv, dq, dk", outputs);
  good = finite<float>("dg", g) && good;  // g itself is finite
  good = finite<float>("dbeta", dbeta) && good;

  for (int sequence : {0, sequences / 2, sequences - 2, sequences - 1}) {
    const std::int64_t first = starts[sequence], length = starts[sequence + 1] - first, plain = length * kHeads * kDim;
    const kda::Shape alone{length, 1, kHeads, kDim};
    Buffer o(plain * 2), dv(plain * 2), dq(plain * 2), dk(plain * 2), dg(plain * 4), db(length * kHeads * 4),
        last(kHeads * kDim * kDim * 4), d_first(kHeads * kDim * kDim * 4),
        own(kda::forward_workspace_bytes(alone, kda::Keep::for_backward)),
        own_more(kda::backward_workspace_bytes(alone, true)),
        own_starts = upload(std::vector<int>{0, static_cast<int>(length)});
    run(first, alone, own_starts.as<std::int32_t>(), sequence,
        {o.data(), dv.data(), dq.data(), dk.data(), dg.as<float>(), db.as<float>(), last.as<float>(),
         d_first.as<float>(), kHeads * kDim, kHeads * kDim},
        own.data(), own_more.data());
    const auto part = [&](const void* data, int which, int element) {  // one of four, made contiguous
      const std::vector<char> all = bytes_at(data, first * kToken, length * kToken, element);
      std::vector<char> out;
      for (std::int64_t row = 0; row < length * kHeads; ++row)
        out.insert(out.end(), all.begin() + (4 * row + which) * kDim * element,
                   all.begin() + (4 * row + which + 1) * kDim * element);
      return out;
    };
    const std::string at = "sequence " + std::to_string(sequence) + ", ";
    good = same((at + "o").c_str(), part(outputs.data(), 0, 2), download<char>(o)) && good;
    good = same((at + "dv").c_str(), part(outputs.data(), 1, 2), download<char>(dv)) && good;
    good = same((at + "dq").c_str(), part(outputs.data(), 2, 2), download<char>(dq)) && good;
    good = same((at + "dk").c_str(), part(outputs.data(), 3, 2), download<char>(dk)) && good;
    good = same((at + "dg").c_str(), part(g.data(), 1, 4), download<char>(dg)) && good;
    good =
        same((at + "dbeta").c_str(), bytes_at(dbeta.data(), first * kHeads, length * kHeads, 4), download<char>(db)) &&
        good;
    const std::int64_t own_state = std::int64_t{kHeads} * kDim * kDim;
    good = same((at + "final state").c_str(), bytes_at(final_state.data(), sequence * own_state, own_state, 4),
                download<char>(last)) &&
           good;
    good = same((at + "d state").c_str(), bytes_at(d_state.data(), sequence * own_state, own_state, 4),
                download<char>(d_first)) &&
           good;
  }
  return good;
}

}  // namespace

void add_large_training_tests(std::vector<Test>& all) { all.push_back({"large-training", false, training_case}); }
#endif

}  // namespace k3::cuda::testing
