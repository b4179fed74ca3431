// The same tokens through different kernels, and many rows at once: a prefill followed by decoding, 4096 tokens of
// decoding, prefill, drafts and chunk form against one oracle, grids of several waves.
#include "kernels_cuda/layer_cases.h"
#include "kernels_cuda/test.h"

namespace k3::cuda::testing {
namespace {

// Rows in several waves of blocks: 300 prompts, and 700 verified rows whose windows are overwritten in place.
bool waves_case() {
  StepCase prompts{"", 3, 128, 300, Type::bf16, {}, {}, {}}, rows{"", 3, 64, 700, Type::bf16, {}, {}, {}};
  for (int i = 0; i < 300; ++i) prompts.lengths.push_back(i * 29 % 70), prompts.slot_of.push_back(299 - i);
  for (int i = 0; i < 700; ++i)
    rows.lengths.push_back(1 + i % 5), rows.slot_of.push_back((i * 3 + 1) % 700),
        rows.commit.push_back(std::min(i % 6, 1 + i % 5));
  const Inputs in = make_inputs(prompts, 23), row_inputs = make_inputs(rows, 24);
  bool good = check_layer_prefill(prompts, in, oracle(prompts, in), {});
  Device device(rows, row_inputs);
  REQUIRE_CUDA(kda::step(device.a, nullptr));
  synchronize();
  return check_step(device, row_inputs, oracle(rows, row_inputs), 4e-3, 2e-3) && good;
}

Inputs part_of(const StepCase& c, const Inputs& in, int begin, int end) {  // tokens of one row
  Inputs part = in;
  const std::size_t width = static_cast<std::size_t>(c.heads) * c.dim;
  const auto cut = [&](std::vector<double>& x, std::size_t row) {
    x = std::vector<double>(x.begin() + begin * row, x.begin() + end * row);
  };
  cut(part.qkv, 3 * width), cut(part.z, width), cut(part.gate, width), cut(part.b, c.heads);
  part.starts = {0, end - begin};
  return part;
}

// vLLM 40956: the layout of the state between prefill and decode. A prefill of `front` tokens, then decoding, against
// the oracle over all tokens; and the same by decoding alone (front 0).
bool handover_case(int length, int front, double y_limit, double state_limit) {
  if (front && !on_hopper_gpu()) return std::printf("    skipped: needs sm_90\n"), true;
  StepCase c{"", 2, 128, 2, Type::bf16, {length}, {1}, {}};
  Inputs in = make_inputs(c, 25);  // decay logits around -4: the handed over state is remembered
  for (double& x : in.bias) x = static_cast<float>(0.7 * x - 4);
  for (double& x : in.z) x = round_bf16(static_cast<float>(0.35 * x));
  const Expected want = oracle(c, in);
  Device whole(c, in);
  if (front) {
    StepCase head = c;
    head.lengths = {front};
    Device first(head, part_of(c, in, 0, front));
    Buffer workspace(kda::prefill_workspace_bytes(front, 1, c.heads));
    REQUIRE_CUDA(kda::prefill(first.a, front, workspace.data(), nullptr));
    synchronize();
    const auto hand_over = [](const Buffer& from, Buffer& to) {
      const std::vector<char> bytes = download<char>(from);
      copy_in(to.data(), bytes.data(), bytes.size());
    };
    hand_over(first.state, whole.state), hand_over(first.window, whole.window);
    const std::vector<char> y = download<char>(first.y);
    copy_in(whole.y.data(), y.data(), y.size());
  }
  std::vector<int> all_starts(length + 1);
  for (int t = 0; t <= length; ++t) all_starts[t] = t;
  const Buffer starts = upload(all_starts);
  kda::StepArguments a = whole.a;
  a.longest = 1;
  for (int t = front; t < length; ++t) {
    a.starts = starts.as<std::int32_t>() + t;
    REQUIRE_CUDA(kda::step(a, nullptr));
  }
  synchronize();
  return check_call(whole, in, want, y_limit, state_limit);
}

// 4096 tokens that are never forgotten quickly: decoding, prefill and chunk form against one another and the oracle.
bool drift_case() {
  const StepCase c{"", 1, 128, 1, Type::bf16, {4096}, {0}, {}, -5, 0.3};
  Inputs in = make_inputs(c, 26);
  for (double& x : in.bias) x = static_cast<float>(0.7 * x - 8);
  const Expected want = oracle(c, in);
  LayerLimits limits;
  bool good = check_layer_step(c, in, limits);
  good = check_layer_prefill(c, in, want, limits) && good;
  const kda::oracle::Problem p = chunk_problem(c, in);
  Run run({"", 1, 128, c.lengths, c.type}, p, Type::bf16, p.v, p.state);
  run.forward(kda::Keep::nothing);
  synchronize();
  good = compare("chunk state", widen(download<float>(run.final_state)), want.state, 7e-3) &&
         good;  // its q, k are rounded to bf16
  return compare("chunk state, own inputs", widen(download<float>(run.final_state)), kda::oracle::forward(p).state,
                 limits.wide) &&
         good;
}

}  // namespace

void add_agreement_tests(std::vector<Test>& all) {
  all.push_back({"waves", false, waves_case});
  all.push_back({"prefill-then-decode", false, [] { return handover_case(200, 131, 8e-3, 7e-3); }});
  all.push_back({"decode-4096", false, [] { return handover_case(4096, 0, 4e-3, 2e-3); }});
  all.push_back({"drift", false, drift_case});
}

}  // namespace k3::cuda::testing
