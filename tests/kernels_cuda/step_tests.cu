// The fused token step: decode, verification, replay.
#include <memory>

#include "kernels_cuda/step_cases.h"
#include "kernels_cuda/test.h"

namespace k3::cuda::testing {
namespace {

bool step_case(const StepCase& c) {
  const Inputs in = make_inputs(c, 5);
  const Expected want = oracle(c, in);
  const bool wide = c.type == Type::fp32;
  bool good = true;
  for (bool told : {true, false}) {  // whether the host knows the longest row: one token has a kernel of its own
    Device device(c, in);
    if (!told) device.a.longest = 0;
    REQUIRE_CUDA(kda::step(device.a, nullptr));
    synchronize();
    good = check_step(device, in, want, wide ? 2e-5 : 4e-3, wide ? 1e-5 : 2e-3) && good;
  }
  return good;
}

// Twelve tokens one by one, in one call, as 1 .. 8 committed ones of a row of 8 (which has a kernel of its own), and as
// 5 committed plus 7 drafts followed by the replay of 4 drafts and 3 new tokens: states, windows and the outputs of
// committed tokens have equal bits. Drafts are computed in chunk form, which adds in another order: their outputs agree
// to a rounding.
bool replay_case(int dim, Type type) {
  const StepCase whole{"", 2, dim, 1, type, {12}, {0}, {}};
  const Inputs in = make_inputs(whole, 6);
  const auto part = [&](int begin, int end, std::vector<int> commit, const Device* from) {
    StepCase c = whole;
    c.lengths = {end - begin}, c.commit = commit;
    Inputs piece = in;
    const std::size_t width = static_cast<std::size_t>(c.heads) * c.dim;
    const auto cut = [&](std::vector<double>& x, std::size_t row) {
      x = std::vector<double>(x.begin() + begin * row, x.begin() + end * row);
    };
    cut(piece.qkv, 3 * width), cut(piece.z, width), cut(piece.gate, width), cut(piece.b, c.heads);
    piece.starts = {0, end - begin};
    if (from) {
      piece.state = widen(download<float>(from->state));
      piece.window = read_rows(from->rows_window);
    }
    auto device = std::make_unique<Device>(c, piece);
    REQUIRE_CUDA(kda::step(device->a, nullptr));
    synchronize();
    return device;
  };
  const auto same_state = [](const Device& x, const Device& y) {
    return download<char>(x.state) == download<char>(y.state) && download<char>(x.window) == download<char>(y.window);
  };
  const auto all = part(0, 12, {}, nullptr);
  bool good = true;
  auto one = part(0, 1, {}, nullptr);
  for (int t = 1; t < 12; ++t) {
    const auto accepted = part(0, 12, {t}, nullptr);
    good = same_state(*accepted, *one) && good;
    if (t <= 8) good = same_state(*part(0, 8, {t}, nullptr), *one) && good;
    one = part(t, t + 1, {}, one.get());
  }
  const auto nine = part(0, 9, {}, nullptr);
  const auto drafted = part(0, 12, {5}, nullptr);         // commits 5, sees 12
  const auto replayed = part(5, 12, {4}, drafted.get());  // 4 accepted drafts, then 3 tokens without trace
  const auto untouched = part(0, 12, {0}, nullptr);
  good = good && same_state(*all, *one) && same_state(*nine, *replayed);
  const std::size_t width = static_cast<std::size_t>(whole.heads) * dim, committed = 5 * width;
  const std::vector<double> y = read_rows(all->rows_y), drafts = read_rows(drafted->rows_y);
  const auto cut = [&](const std::vector<double>& x, bool front) {
    return front ? std::vector<double>(x.begin(), x.begin() + committed)
                 : std::vector<double>(x.begin() + committed, x.end());
  };
  good = good && cut(y, true) == cut(drafts, true);
  const double draft_limit = type == Type::fp32 ? 1e-5 : 4e-3;
  good = compare("drafts", cut(drafts, false), cut(y, false), draft_limit) && good;
  Device fresh(whole, in);
  return good && same_state(fresh, *untouched);
}

}  // namespace

void add_step_tests(std::vector<Test>& all) {
  for (int dim : {32, 64, 128})
    for (Type type : {Type::fp32, Type::bf16}) {
      const std::string tag = "-d" + std::to_string(dim) + (type == Type::fp32 ? "-fp32" : "-bf16");
      const auto add = [&](StepCase c, bool small) {
        c.name += tag;
        all.push_back({c.name, small, [=] { return step_case(c); }});
      };
      add({"step-decode", 3, dim, 6, type, {1, 1, 1, 1}, {4, -1, 0, 2}, {}}, true);
      add({"step-one-draft", 3, dim, 6, type, {1, 1, 0, 1}, {4, 1, 0, 2}, {0, 1, 0, 0}}, true);
      add({"step-mixed", 2, dim, 7, type, {1, 9, 0, 16, 3, 2}, {6, 1, 3, 0, 2, -1}, {1, 4, 0, 16, 0, 1}}, true);
      add({"step-verify", 2, dim, 10, type, {8, 8, 8, 5, 1, 7, 8, 3, 0, 6}, {5, 1, 3, 0, 2, -1, 7, 4, 6, 8},
           {1, 4, 0, 4, 0, 3, 8, 2, 0, 5}},
          true);
      add({"step-drafts", 2, dim, 6, type, {8, 25, 1, 17, 40}, {5, 1, 3, 0, 2}, {0, 3, 0, 16, 17}}, true);
      add({"step-prompt", 2, dim, 3, type, {35, 16, 17}, {1, 0, 2}, {}}, dim == 32);
      add({"step-softplus-drafts", 2, dim, 3, type, {9, 20}, {2, 1}, {1, 4}, 0, 12}, true);
      add({"step-softplus", 2, dim, 3, type, {5, 1}, {2, 1}, {}, 0}, true);
      add({"step-extreme-gates", 2, dim, 3, type, {40, 1}, {2, 1}, {}, -5, 30}, false);
      add({"step-extreme-drafts", 2, dim, 3, type, {9, 24}, {2, 1}, {1, 0}, -5, 30}, false);
      add({"step-many-rows",
           5,
           dim,
           600,
           type,
           std::vector<int>(512, 1),
           [] {
             std::vector<int> slots(512);
             for (int i = 0; i < 512; ++i) slots[i] = 599 - i;
             return slots;
           }(),
           {}},
          false);
      StepCase many{"step-many-drafts", 5, dim, 130, type, {}, {}, {}};  // several items a block on any GPU
      for (int i = 0; i < 128; ++i) {
        many.lengths.push_back(i * 7 % 19), many.slot_of.push_back(i % 11 == 5 ? -1 : 129 - i);
        many.commit.push_back(i * 5 % (many.lengths[i] + 1));
      }
      add(many, false);
      all.push_back({"step-replay" + tag, dim == 32, [=] { return replay_case(dim, type); }});
    }
  all.push_back({"step-refusals", true, [] {
                   const StepCase c{"", 2, 32, 3, Type::bf16, {1, 1}, {2, 1}, {}};
                   const Inputs in = make_inputs(c, 5);
                   Device device(c, in);
                   const auto refuses = [&](auto change) {
                     kda::StepArguments a = device.a;
                     change(a);
                     return kda::step(a, nullptr) == cudaErrorInvalidValue;
                   };
                   return refuses([](auto& a) { a.dim = 48; }) && refuses([](auto& a) { a.q.token_stride += 4; }) &&
                          refuses([](auto& a) { a.gate.data = static_cast<const char*>(a.gate.data) + 8; }) &&
                          refuses([](auto& a) { a.state += 1; }) && refuses([](auto& a) { a.slots = nullptr; }) &&
                          refuses([](auto& a) { a.rows = 65536; });
                 }});
}

}  // namespace k3::cuda::testing
