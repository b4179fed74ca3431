// The Hopper prefill: the operand blocks of its first kernel through a state loop in fp64, and the whole of it,
// against the layer of step.h.
#include "kernels/cuda/kda/prefill.h"
#include "kernels/cuda/kda/prefill_blocks.cuh"
#include "kernels_cuda/step_cases.h"
#include "kernels_cuda/test.h"

namespace k3::cuda::testing {
namespace {

namespace detail = kda::prefill_detail;

double bf16_at(const unsigned char* p) {
  __nv_bfloat16 x;
  std::memcpy(&x, p, 2);
  return __bfloat162float(x);
}
double operand(const unsigned char* block, int offset, int row,
               int column) {  // [64][128] in two panels, or [64][64] in one
  return bf16_at(block + offset + column / 64 * detail::kPanel + detail::panel_offset(row, column % 64 * 2));
}

bool factors_case(const StepCase& c) {
  const Inputs in = make_inputs(c, 9);
  const Expected want = oracle(c, in);
  Device device(c, in);
  const int longest = *std::max_element(c.lengths.begin(), c.lengths.end()), chunks = (longest + 63) / 64, D = 128,
            H = c.heads;
  Buffer blocks(static_cast<std::size_t>(c.lengths.size()) * chunks * H * detail::kBlockStride);
  REQUIRE_CUDA(detail::launch_factors(device.a, {0, chunks, blocks.as<unsigned char>()}, nullptr));
  synchronize();
  const std::vector<unsigned char> bytes = download<unsigned char>(blocks);
  std::vector<double> y(want.y.size()), expected = want.y, states = in.state;
  for (std::size_t row = 0; row < c.lengths.size(); ++row) {
    if (c.slot_of[row] < 0) {
      std::fill(&expected[static_cast<std::size_t>(in.starts[row]) * H * D],
                &expected[0] + static_cast<std::size_t>(in.starts[row + 1]) * H * D, 0.0);
      continue;
    }
    for (int h = 0; h < H; ++h) {
      double* S = &states[(static_cast<std::size_t>(c.slot_of[row]) * H + h) * D * D];
      for (int chunk = 0; chunk * 64 < c.lengths[row]; ++chunk) {
        const unsigned char* block = &bytes[((row * chunks + chunk) * H + h) * detail::kBlockStride];
        std::vector<double> R(64 * D);
        for (int i = 0; i < 64; ++i)
          for (int v = 0; v < D; ++v) {
            R[i * D + v] = operand(block, detail::kWeightedValues, i, v);
            for (int k = 0; k < D; ++k) R[i * D + v] -= operand(block, detail::kWeightedKeys, i, k) * S[k * D + v];
          }
        for (int i = 0; i < 64 && chunk * 64 + i < c.lengths[row]; ++i) {
          std::vector<double> o(D);
          double square = 0;
          for (int v = 0; v < D; ++v) {
            for (int k = 0; k < D; ++k) o[v] += operand(block, detail::kDecayedQueries, i, k) * S[k * D + v];
            for (int j = 0; j < 64; ++j) o[v] += operand(block, detail::kScores, i, j) * R[j * D + v];
            square += o[v] * o[v] / D;
          }
          const std::size_t at = (static_cast<std::size_t>(in.starts[row] + chunk * 64 + i) * H + h) * D;
          for (int v = 0; v < D; ++v)
            y[at + v] = o[v] / std::sqrt(square + 1e-5) * in.norm[v] / (1 + std::exp(-in.gate[at + v]));
        }
        for (int k = 0; k < D; ++k) {
          float decay;
          std::memcpy(&decay, block + detail::kDecay + 4 * k, 4);
          for (int v = 0; v < D; ++v) {
            S[k * D + v] *= decay;
            for (int i = 0; i < 64; ++i) S[k * D + v] += operand(block, detail::kRestoredKeys, i, k) * R[i * D + v];
          }
        }
      }
    }
  }
  bool good = compare("y", y, expected, 6e-3);
  return compare("state", states, want.state, 5e-3) && good;
}

bool on_hopper() {
#ifdef K3_CUDA_EMULATOR
  return true;
#else
  cudaDeviceProp properties;
  REQUIRE_CUDA(cudaGetDeviceProperties(&properties, 0));
  return properties.major == 9 && properties.minor == 0;
#endif
}
bool prefill_case(const StepCase& c, std::int64_t slab_bytes) {
  if (!on_hopper()) return std::printf("    skipped: needs sm_90\n"), true;
  const Inputs in = make_inputs(c, 9);
  const Expected want = oracle(c, in);
  const int longest = *std::max_element(c.lengths.begin(), c.lengths.end()), rows = static_cast<int>(c.lengths.size());
  std::vector<std::vector<char>> first;
  bool good = true;
  for (int turn = 0; turn < 3; ++turn) {
    Device device(c, in);
    Buffer workspace(kda::prefill_workspace_bytes(longest, rows, c.heads, slab_bytes));
    REQUIRE_CUDA(kda::prefill(device.a, longest, workspace.data(), nullptr, slab_bytes));
    synchronize();
    std::vector<std::vector<char>> bits{download<char>(device.y), download<char>(device.state),
                                        download<char>(device.window)};
    if (turn == 0) {
      good = check_step(device, in, want, 8e-3, 7e-3);
      first = bits;
    } else if (bits != first) {
      std::printf("    FAIL run %d differs from the first\n", turn);
      good = false;
    }
  }
  return good;
}

}  // namespace

void add_prefill_tests(std::vector<Test>& all) {
  const auto add = [&](const StepCase& c, bool small) {
    all.push_back({"factors-" + c.name, small, [=] { return factors_case(c); }});
    all.push_back({"prefill-" + c.name, small, [=] { return prefill_case(c, kda::kSlabBytes); }});
    all.push_back({"prefill-slabs-" + c.name, small, [=] { return prefill_case(c, 1); }});
  };
  add({"one-chunk", 1, 128, 1, Type::bf16, {64}, {0}, {}}, true);
  add({"mixed", 2, 128, 7, Type::bf16, {70, 1, 0, 130, 3, 17}, {6, 1, 3, 0, 2, -1}, {}}, true);
  add({"bound", 1, 128, 1, Type::bf16, {150}, {0}, {}, -5, 40}, true);
  add({"lengths",
       3,
       128,
       20,
       Type::bf16,
       {1, 2, 15, 16, 17, 31, 33, 37, 63, 64, 65, 97, 127, 128, 129, 1, 1, 300, 0, 5},
       {19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
       {}},
      false);
  add({"long", 2, 128, 2, Type::bf16, {1500, 700}, {1, 0}, {}}, false);
  add({"weak-gate", 2, 128, 2, Type::bf16, {700, 64}, {1, 0}, {}, -0.01}, false);
}

}  // namespace k3::cuda::testing
