// The Hopper prefill: the operand blocks of its first kernel through a state loop in fp64, and the whole of it,
// against the layer of step.h.
#include "kernels/cuda/kda/prefill.h"
#include "kernels/cuda/kda/prefill_blocks.cuh"
#include "kernels/cuda/kda/prefill_plan.h"
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
// [64][128] in two panels, or A, [64][64] in one; rows are tokens, and so are the columns of A.
double operand(const unsigned char* block, int offset, int row, int column) {
  if (offset == detail::kScores) column = detail::exchanged(column);
  return bf16_at(block + offset + column / 64 * detail::kPanel +
                 detail::panel_offset(detail::exchanged(row), column % 64 * 2));
}

// The same blocks in another order, and a flag for each that exists.
bool overlapped_factors(const StepCase& c, const kda::StepArguments& a, int chunks, int state_blocks,
                        const std::vector<unsigned char>& want) {
  const std::size_t count = want.size() / detail::kBlockStride;
  const int counters = detail::Slab::counters(state_blocks);
  Buffer blocks(want.size()), ready = upload(std::vector<std::uint32_t>(count + counters));
  REQUIRE_CUDA(detail::launch_factors(
      a,
      {0, chunks, 0, static_cast<int>(c.lengths.size()) * c.heads, blocks.as<unsigned char>(), state_blocks,
       ready.as<std::uint32_t>() + counters, ready.as<std::uint32_t>()},
      nullptr));
  synchronize();
  const std::vector<unsigned char> got = download<unsigned char>(blocks);
  const std::vector<std::uint32_t> flags = download<std::uint32_t>(ready);  // behind the counters
  for (std::size_t i = 0; i < count; ++i) {
    const int row = static_cast<int>(i / chunks / c.heads), chunk = static_cast<int>(i % chunks);
    const bool there = c.slot_of[row] >= 0 && chunk * 64 < c.lengths[row];
    const auto at = static_cast<std::ptrdiff_t>(i * detail::kBlockStride);
    const std::uint32_t flag = flags[counters + i];
    if (flag == static_cast<std::uint32_t>(there) &&
        (!there || std::equal(&got[at], &got[at] + detail::kBlockBytes, &want[at])))
      continue;
    std::printf("    FAIL block %zu with %d state blocks: flag %u\n", i, state_blocks, flag);
    return false;
  }
  return true;
}

bool factors_case(const StepCase& c) {
  const Inputs in = make_inputs(c, 9);
  const Expected want = oracle(c, in);
  Device device(c, in);
  const int longest = *std::max_element(c.lengths.begin(), c.lengths.end()), chunks = (longest + 63) / 64, D = 128,
            H = c.heads;
  Buffer blocks(static_cast<std::size_t>(c.lengths.size()) * chunks * H * detail::kBlockStride);
  const int lines = static_cast<int>(c.lengths.size()) * H;
  REQUIRE_CUDA(detail::launch_factors(device.a, {0, chunks, 0, lines, blocks.as<unsigned char>()}, nullptr));
  synchronize();
  const std::vector<unsigned char> bytes = download<unsigned char>(blocks);
  bool good = true;
  for (int state_blocks : {1, 3}) good = overlapped_factors(c, device.a, chunks, state_blocks, bytes) && good;
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
        const unsigned char* block = &bytes[((row * H + h) * chunks + chunk) * detail::kBlockStride];
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
  good = compare("y", y, expected, 6e-3) && good;
  return compare("state", states, want.state, 5e-3) && good;
}

// Twice, equal bit for bit, and against the oracle. What it wrote, for further comparison.
struct Outcome {
  std::vector<double> y, state;
  bool good = true;
};
Outcome run_prefill(const StepCase& c, const Inputs& in, const Expected& want, const kda::PrefillOptions& options,
                    double y_limit, double state_limit) {
  const int longest = *std::max_element(c.lengths.begin(), c.lengths.end()), rows = static_cast<int>(c.lengths.size());
  std::vector<std::vector<char>> first;
  Outcome out;
  for (int turn = 0; turn < 3; ++turn) {
    Device device(c, in);
    Buffer workspace(kda::prefill_workspace_bytes(longest, rows, c.heads, options));
    REQUIRE_CUDA(kda::prefill(device.a, longest, workspace.data(), nullptr, options));
    synchronize();
    std::vector<std::vector<char>> bits{download<char>(device.y), download<char>(device.state),
                                        download<char>(device.window)};
    if (turn == 0) {
      out = {read_rows(device.rows_y), widen(download<float>(device.state)),
             check_step(device, in, want, y_limit, state_limit)};
      first = bits;
    } else if (bits != first) {
      std::printf("    FAIL run %d differs from the first\n", turn);
      out.good = false;
    }
  }
  return out;
}
bool same(const std::vector<double>& a, const std::vector<double>& b) {  // bit for bit, poison too
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}
// As planned, and with both kernels at the same time, whose result must not differ from one after the other: in slabs
// of that size, and in slabs of two lines with all their chunks.
bool prefill_case(const StepCase& c, std::int64_t slab_bytes) {
  if (!on_hopper_gpu()) return std::printf("    skipped: needs sm_90\n"), true;
  const Inputs in = make_inputs(c, 9);
  const Expected want = oracle(c, in);
  const auto run = [&](const kda::PrefillOptions& options) { return run_prefill(c, in, want, options, 8e-3, 7e-3); };
  const Outcome whole = run({slab_bytes, 1});
  bool good = run({slab_bytes}).good && whole.good;
  const std::int64_t chunks = (*std::max_element(c.lengths.begin(), c.lengths.end()) + 63) / 64;
  const std::vector<kda::PrefillOptions> both = {
      {slab_bytes, 0, 1}, {slab_bytes, 0, 3}, {2 * chunks * detail::kBlockStride, 0, 2},
      {slab_bytes, 0, 1, 2}, {slab_bytes, 0, 3, 2}};
  for (const kda::PrefillOptions& options : both) {
    const Outcome overlapped = run(options);
    good = overlapped.good && good;
    if (same(overlapped.y, whole.y) && same(overlapped.state, whole.state)) continue;
    std::printf("    FAIL %d state blocks of %d change the result\n", options.state_blocks, options.ranks);
    good = false;
  }
  return good;
}

// What a split must stand: plain inputs; decay logits around -4 (some channels forget slowly) and -8 (all remember);
// keys that all point the same way with beta near 1; keys of eight directions in turn, whose values shrink by 100 half
// way, so that M removes nearly all of an entry state far larger than what comes out; halves of the channels that
// forget all in turn, a chunk each, and a key between the chunks that hands the state from one half to the other: every
// channel has forgotten after two chunks, a quarter of the state is there.
enum class Memory { plain, slow, longest, correlated, falling, turns };
Inputs make_memory(const StepCase& c, Memory memory) {
  Inputs in = make_inputs(c, 9);
  if (memory == Memory::plain) return in;
  const std::size_t width = static_cast<std::size_t>(c.heads) * c.dim;
  for (double& x : in.bias) x = static_cast<float>(0.7 * x - (memory == Memory::slow ? 4 : 8));
  for (double& x : in.z) x = round_bf16(static_cast<float>(0.35 * x));
  for (double& x : in.a_log) x = 0;
  if (memory == Memory::turns)
    for (std::size_t i = 0; i < in.z.size(); ++i) {
      const std::size_t token = i / width, channel = i % width;
      if ((token / 64 + channel) % 2 == 0) in.z[i] = 20;
      in.qkv[(3 * token + 1) * width + channel] = token % 64 == 63 ? in.qkv[(3 * 63 + 1) * width + channel] : 0;
    }
  if (memory != Memory::correlated && memory != Memory::falling) return in;
  for (std::size_t i = 0; i < in.qkv.size() / (3 * width); ++i)
    for (std::size_t d = 0; d < width; ++d) {
      double& key = in.qkv[(3 * i + 1) * width + d];
      if (memory == Memory::falling) key = in.qkv[(3 * (i % 8) + 1) * width + d];
      else key = round_bf16(static_cast<float>((d * 37 % 64 < 32 ? 1 : -1) + 0.3 * key));
    }
  for (double& x : in.b) x = round_bf16(static_cast<float>(x + 4));
  if (memory == Memory::falling)
    for (std::size_t token = 0; token < in.b.size() / c.heads / 2; ++token)
      for (std::size_t d = 0; d < width; ++d) {
        double& value = in.qkv[(3 * token + 2) * width + d];
        value = round_bf16(static_cast<float>(100 * value));
      }
  return in;
}
// Against the oracle, and against the same prompt in one segment: both round the state they multiply to bf16, the split
// one in other places. Rows too short to be split must not differ at all.
bool split_case(const StepCase& c, Memory memory, int segments, double y_limit, double state_limit) {
  if (!on_hopper_gpu()) return std::printf("    skipped: needs sm_90\n"), true;
  const Inputs in = make_memory(c, memory);
  const Expected want = oracle(c, in);
  const Outcome whole = run_prefill(c, in, want, {.segments = 1}, y_limit, state_limit),
                split = run_prefill(c, in, want, {.segments = segments}, y_limit, state_limit);
  const int chunks = (*std::max_element(c.lengths.begin(), c.lengths.end()) + 63) / 64,
            whole_rows = (chunks + segments - 1) / segments * 64;
  const std::size_t width = static_cast<std::size_t>(c.heads) * c.dim;
  bool good = true;
  for (std::size_t row = 0; row < c.lengths.size(); ++row)
    if (c.lengths[row] <= whole_rows &&
        !std::equal(&whole.y[0] + in.starts[row] * width, &whole.y[0] + in.starts[row + 1] * width,
                    &split.y[0] + in.starts[row] * width)) {
      std::printf("    FAIL row %zu of %d tokens was not to be split\n", row, c.lengths[row]);
      good = false;
    }
  good = compare("y, split", split.y, whole.y, 8e-3) && good;
  return compare("state, split", split.state, whole.state, 5e-3) && good && whole.good && split.good;
}

// A captured prefill does what the direct one did.
bool graph_case(const StepCase& c, const kda::PrefillOptions& options) {
#ifndef K3_CUDA_EMULATOR
  if (!on_hopper_gpu()) return std::printf("    skipped: needs sm_90\n"), true;
  const Inputs in = make_memory(c, Memory::slow);
  const int longest = *std::max_element(c.lengths.begin(), c.lengths.end()), rows = static_cast<int>(c.lengths.size());
  Device direct(c, in), captured(c, in);
  Buffer workspace(kda::prefill_workspace_bytes(longest, rows, c.heads, options));
  REQUIRE_CUDA(kda::prefill(direct.a, longest, workspace.data(), nullptr, options));
  synchronize();
  workspace.poison();
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  REQUIRE_CUDA(kda::prefill(captured.a, longest, workspace.data(), stream, options));
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
  REQUIRE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  REQUIRE_CUDA(cudaGraphLaunch(executable, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaGraphExecDestroy(executable));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
  REQUIRE_CUDA(cudaStreamDestroy(stream));
  if (download<char>(direct.y) != download<char>(captured.y) ||
      download<char>(direct.state) != download<char>(captured.state))
    return std::printf("    FAIL the graph's result differs\n"), false;
#endif
  return true;
}

bool planner_case() {
  struct Line {
    int chunks, rows, heads, state_blocks, segments, ranks = 1;
  };
  bool good = true;
  for (const Line& want :
       {Line{1, 1, 1, 1, 1}, Line{128, 1, 1, 0, 26}, Line{128, 1, 12, 0, 11}, Line{32, 1, 12, 12, 1, 2},
        Line{128, 1, 24, 24, 1, 2}, Line{128, 1, 32, 32, 1}, Line{128, 1, 96, 36, 1}, Line{128, 4, 96, 36, 1},
        Line{2, 64, 96, 0, 1}}) {
    const detail::Plan got = detail::plan_prefill(want.chunks, want.rows, want.heads, 132);
    if (got.segments == want.segments && got.state_blocks == want.state_blocks && got.ranks == want.ranks)
      continue;
    std::printf("    FAIL %d chunks, %d rows, %d heads: %d state blocks of %d, %d segments\n", want.chunks, want.rows,
                want.heads, got.state_blocks, got.ranks, got.segments);
    good = false;
  }
  return good;
}

}  // namespace

void add_prefill_tests(std::vector<Test>& all) {
  const auto add = [&](const StepCase& c, bool small) {
    all.push_back({"factors-" + c.name, small, [=] { return factors_case(c); }});
    all.push_back({"prefill-" + c.name, small, [=] { return prefill_case(c, std::int64_t{1} << 30); }});
    all.push_back({"prefill-slabs-" + c.name, small, [=] { return prefill_case(c, 1); }});
  };
  add({"one-chunk", 1, 128, 1, Type::bf16, {64}, {0}, {}}, true);
  add({"mixed", 2, 128, 7, Type::bf16, {70, 1, 0, 130, 3, 17}, {6, 1, 3, 0, 2, -1}, {}}, true);
  add({"turns", 1, 128, 3, Type::bf16, {330, 64, 200}, {2, 0, 1}, {}}, true);
  // Chunks of 64 tokens with fewer than four tokens ahead of them in the packed tensors.
  add({"shifted", 1, 128, 4, Type::bf16, {2, 130, 1, 64}, {3, 0, 2, 1}, {}}, true);
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
  // More rows than the shares of the state blocks keep at hand, some of them empty or without a slot.
  StepCase rows{"rows", 2, 128, 70, Type::bf16, {}, {}, {}};
  for (int row = 0; row < 70; ++row)
    rows.lengths.push_back(row % 9 == 4 ? 0 : 1 + row * 53 % 230), rows.slot_of.push_back(row % 11 == 7 ? -1 : row);
  add(rows, false);
  add({"weak-gate", 2, 128, 2, Type::bf16, {700, 64}, {1, 0}, {}, -0.01}, false);

  all.push_back({"prefill-split-planner", true, planner_case});
  const auto split = [&](const StepCase& c, Memory memory, int segments, bool small, double y_limit = 8e-3,
                         double state_limit = 7e-3) {
    all.push_back({"prefill-split-" + c.name, small,
                   [=] { return split_case(c, memory, segments, y_limit, state_limit); }});
  };
  split({"small", 1, 128, 1, Type::bf16, {300}, {0}, {}}, Memory::plain, 4, true);
  split({"small-longest", 1, 128, 1, Type::bf16, {500}, {0}, {}}, Memory::longest, 4, true);
  split({"small-turns", 1, 128, 1, Type::bf16, {700}, {0}, {}}, Memory::turns, 3, true);
  split({"small-packed", 1, 128, 4, Type::bf16, {130, 60, 260, 0}, {2, 1, 0, 3}, {}}, Memory::slow, 3, true);
  split({"plain", 2, 128, 1, Type::bf16, {2050}, {0}, {}}, Memory::plain, 8, false);
  split({"slow", 2, 128, 1, Type::bf16, {2050}, {0}, {}}, Memory::slow, 8, false);
  split({"longest", 2, 128, 1, Type::bf16, {4000}, {0}, {}}, Memory::longest, 16, false);
  // The rounding of W, U and Kb to bf16 counts more here, split or not: 9.2e-3 and 8.1e-3, and 4.7e-2 where the state
  // is the small rest of a large one.
  split({"correlated", 2, 128, 1, Type::bf16, {4000}, {0}, {}}, Memory::correlated, 16, false, 1.2e-2, 1.1e-2);
  split({"falling", 1, 128, 1, Type::bf16, {1024}, {0}, {}}, Memory::falling, 4, false, 6e-2, 6e-2);
  const StepCase graph{"graph", 2, 128, 2, Type::bf16, {1500, 200}, {1, 0}, {}};
  all.push_back({"prefill-split-graph", false, [=] { return graph_case(graph, {.segments = 6}); }});
  all.push_back({"prefill-graph", false, [=] { return graph_case(graph, {.state_blocks = 3}); }});
  all.push_back({"prefill-graph-ranks", false, [=] { return graph_case(graph, {.state_blocks = 2, .ranks = 2}); }});
  split({"packed", 2, 128, 6, Type::bf16, {1500, 64, 700, 0, 1, 129}, {5, 4, 3, 2, 1, 0}, {}}, Memory::longest, 6,
        false);
}

}  // namespace k3::cuda::testing
