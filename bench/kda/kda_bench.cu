// Times the CUDA KDA kernels: kda_bench list | kda_bench NAME. CUDA events, the L2 flushed between runs, median of 50
// (fewer for long ones). A line gives the time, the floor (bytes that must move at the rate a device copy reaches on
// this GPU, measured in the same run) and the ratio. Inputs are random; correctness is the business of
// tests/kernels_cuda.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/kda/chunk_hopper.cuh"
#include "kernels/cuda/kda/chunk_workspace.cuh"
#include "kernels/cuda/kda/kda.h"
#include "kernels/cuda/kda/prefill.h"
#include "kernels/cuda/kda/prefill_blocks.cuh"
#include "kernels/cuda/kda/step.h"

#define REQUIRE_CUDA(call)                                                                       \
  do {                                                                                           \
    const cudaError_t error_ = (call);                                                           \
    if (error_ != cudaSuccess) {                                                                 \
      std::printf("%s:%d: %s from %s\n", __FILE__, __LINE__, cudaGetErrorString(error_), #call); \
      std::exit(3);                                                                              \
    }                                                                                            \
  } while (0)

namespace {

using namespace k3::cuda::kda;

__global__ void fill_kernel(float* wide, __nv_bfloat16* narrow, std::int64_t count, unsigned seed, float low,
                            float high, int unit) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    unsigned x = static_cast<unsigned>(i) * 2654435761u + seed;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
    float value = low + (high - low) * (x >> 8) * (1.f / 16777216.f);
    if (unit) value *= rsqrtf(unit / 3.f);  // uniform in [-1, 1]: rows of length about 1
    if (wide) wide[i] = value;
    else narrow[i] = __float2bfloat16(value);
  }
}
template <class T>
T* allocate(std::int64_t count) {
  void* p = nullptr;
  REQUIRE_CUDA(cudaMalloc(&p, count * sizeof(T) + 256));
  REQUIRE_CUDA(cudaMemset(p, 0xff, count * sizeof(T)));
  return static_cast<T*>(p);
}
float* random_floats(std::int64_t count, unsigned seed, float low, float high, int unit = 0) {
  float* p = allocate<float>(count);
  fill_kernel<<<1024, 256>>>(p, nullptr, count, seed, low, high, unit);
  return p;
}
__nv_bfloat16* random_bf16(std::int64_t count, unsigned seed, int unit = 0) {
  auto* p = allocate<__nv_bfloat16>(count);
  fill_kernel<<<1024, 256>>>(nullptr, p, count, seed, -1.f, 1.f, unit);
  return p;
}

struct Timing {
  double median, low, high;  // microseconds
};
Timing time_of(const std::function<void()>& run, int repeats = 50) {
  constexpr std::size_t kFlush = 128u << 20;  // more than any L2
  static void* flush = [] {
    void* p;
    REQUIRE_CUDA(cudaMalloc(&p, kFlush));
    return p;
  }();
  cudaEvent_t begin, end;
  REQUIRE_CUDA(cudaEventCreate(&begin));
  REQUIRE_CUDA(cudaEventCreate(&end));
  for (int i = 0; i < 2; ++i) run();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  std::vector<double> times;
  double spent = 0;
  for (int i = 0; i < repeats && (i < 5 || spent < 1.5e6); ++i) {
    REQUIRE_CUDA(cudaMemsetAsync(flush, i, kFlush));
    REQUIRE_CUDA(cudaEventRecord(begin));
    run();
    REQUIRE_CUDA(cudaEventRecord(end));
    REQUIRE_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    REQUIRE_CUDA(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms * 1e3);
    spent += ms * 1e3;
  }
  REQUIRE_CUDA(cudaGetLastError());
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}
double copy_bytes_per_us() {  // read + written
  const std::size_t bytes = std::size_t{1} << 30;
  char* p = allocate<char>(2 * bytes);
  const Timing t = time_of([&] { REQUIRE_CUDA(cudaMemcpyAsync(p, p + bytes, bytes, cudaMemcpyDeviceToDevice)); }, 20);
  REQUIRE_CUDA(cudaFree(p));
  return 2.0 * bytes / t.median;
}
double ceiling = 0;
void report(const std::string& what, const Timing& t, double bytes) {
  const double floor = bytes / ceiling;
  std::printf("%-52s %9.1f us (%.1f..%.1f)  floor %8.1f us (%.0f MB)  ratio %.2f\n", what.c_str(), t.median, t.low,
              t.high, floor, bytes * 1e-6, t.median / floor);
  std::fflush(stdout);
}

struct Core {
  ForwardInputs in;
  ForwardOutputs out;
  BackwardArguments back;
  void *kept = nullptr, *workspace = nullptr;
  std::int64_t values = 0, states = 0;

  Core(const std::vector<int>& lengths, int heads, int dim, float gate_low, float gate_high, bool train) {
    std::vector<int> starts{0};
    for (int length : lengths) starts.push_back(starts.back() + length);
    const std::int64_t tokens = starts.back(), token_stride = static_cast<std::int64_t>(heads) * dim;
    values = tokens * token_stride, states = static_cast<std::int64_t>(lengths.size()) * heads * dim * dim;
    const auto rows = [&](const void* p) { return Rows{p, token_stride, dim}; };
    const auto results = [&](void* p) { return MutableRows{p, token_stride, dim}; };
    in.shape = {tokens, static_cast<int>(lengths.size()), heads, dim};
    in.q = rows(random_bf16(values, 1, dim)), in.k = rows(random_bf16(values, 2, dim)),
    in.v = rows(random_bf16(values, 3));
    in.g = rows(random_floats(values, 4, gate_low, gate_high)),
    in.beta = {random_floats(tokens * heads, 5, 0.f, 1.f), heads, 1};
    int* device_starts = allocate<int>(starts.size());
    REQUIRE_CUDA(cudaMemcpy(device_starts, starts.data(), starts.size() * sizeof(int), cudaMemcpyHostToDevice));
    in.starts = device_starts, in.scale = 1.f / std::sqrt(static_cast<float>(dim));
    out = {Type::bf16, results(allocate<__nv_bfloat16>(values)), allocate<float>(states)};
    kept = allocate<char>(forward_workspace_bytes(in.shape, train ? Keep::for_backward : Keep::nothing));
    if (!train) return;
    back.inputs = in, back.output_type = Type::bf16, back.d_o = rows(random_bf16(values, 6)), back.kept = kept;
    back.dq = results(allocate<__nv_bfloat16>(values)), back.dk = results(allocate<__nv_bfloat16>(values)),
    back.dv = results(allocate<__nv_bfloat16>(values));
    back.dg = results(allocate<float>(values)), back.dbeta = {allocate<float>(tokens * heads), heads, 1};
    workspace = allocate<char>(backward_workspace_bytes(in.shape, false));
  }
  double forward_bytes() const { return values * (4 * 2 + 4.0) + states * 4.0; }  // q, k, v, o bf16; g fp32
  double backward_bytes() const {
    return values * (3 * 2 + 4 + 2 + 3 * 2 + 4.0);
  }  // q, k, v, g, dO read; dq, dk, dv, dg written
  void forward(Keep keep) { REQUIRE_CUDA(k3::cuda::kda::forward(in, out, keep, kept, nullptr)); }
  void backward(bool use_kept) {
    back.kept = use_kept ? kept : nullptr;
    REQUIRE_CUDA(k3::cuda::kda::backward(back, workspace, nullptr));
  }
};

std::vector<int> packed_lengths(int total) {  // 100 .. 4096 tokens, the tail shorter
  std::vector<int> lengths;
  unsigned x = 12345;
  while (total > 0) {
    x = x * 1664525u + 1013904223u;
    const int length = std::min<int>(total, 100 + static_cast<int>((x >> 8) % 3997));
    lengths.push_back(length);
    total -= length;
  }
  return lengths;
}

void train_case(const std::string& name, const std::vector<int>& lengths, int heads, int dim) {
  Core core(lengths, heads, dim, -5.f, 0.f, true);
  std::printf("%s: %lld tokens in %zu sequences, %d heads, dim %d; %s kernels; workspaces %.2f GB kept, %.2f GB\n",
              name.c_str(),
              static_cast<long long>(core.in.shape.tokens), lengths.size(), heads, dim,
              chunk_path(core.in.shape, core.in.type) == ChunkPath::hopper ? "hopper" : "plain",
              forward_workspace_bytes(core.in.shape, Keep::for_backward) * 1e-9,
              backward_workspace_bytes(core.in.shape, true) * 1e-9);
  report(name + " forward", time_of([&] { core.forward(Keep::nothing); }), core.forward_bytes());
  report(name + " forward, kept", time_of([&] { core.forward(Keep::for_backward); }), core.forward_bytes());
  report(name + " backward, kept", time_of([&] { core.backward(true); }), core.backward_bytes());
  report(name + " backward, computed again", time_of([&] { core.backward(false); }), core.backward_bytes());
  report(name + " forward + backward", time_of([&] { core.forward(Keep::for_backward), core.backward(true); }),
         core.forward_bytes() + core.backward_bytes());
}
// Each kernel of forward and backward alone; a floor of the bytes it reads and writes, workspace included.
void plain_parts(Core& core, const std::string& name) {
  ChunkWorkspace w;
  BackwardWorkspace gradients;
  place(w, core.in.shape, Keep::for_backward, core.kept);
  place(gradients, core.in.shape, core.workspace);
  const double tile = core.values, wide = 4 * tile, narrow = 2 * tile, square = 4.0 * tile / core.in.shape.dim * kChunk,
               states = wide / kChunk * core.in.shape.dim;
  report(name + " plan", time_of([&] { REQUIRE_CUDA(launch_plan(core.in, kChunk, w.chunk_starts, nullptr, 0, nullptr)); }), 1e4);
  report(name + " factors", time_of([&] { REQUIRE_CUDA(launch_factors(core.in, w, nullptr)); }),
         3 * narrow + 5 * wide + 2 * square);
  report(name + " scan, kept", time_of([&] { REQUIRE_CUDA(launch_scan(core.in, &core.out, w, nullptr)); }),
         5 * wide + square + states + narrow);
  report(name + " scan back", time_of([&] { REQUIRE_CUDA(launch_scan_backward(core.back, w, gradients, nullptr)); }),
         4 * wide + square + states + narrow);
  report(name + " gradients", time_of([&] { REQUIRE_CUDA(launch_gradients(core.back, w, gradients, nullptr)); }),
         7 * narrow + 4 * wide + square + 2 * states);
}
void hopper_chunk_parts(Core& core, const std::string& name) {
  hopper::Workspace w;
  hopper::Gradients gradients;
  hopper::place(w, core.in.shape, Keep::for_backward, core.kept);
  hopper::place(gradients, core.in.shape, core.workspace);
  const double tile = core.values, wide = 4 * tile, narrow = 2 * tile,
               square = 2 * tile / core.in.shape.dim * hopper::kTokens,
               states = 2 * tile / hopper::kTokens * core.in.shape.dim;
  report(name + " plan", time_of([&] { REQUIRE_CUDA(hopper::launch_plan(core.in, w, nullptr)); }),
         1e4);
  report(name + " range of v", time_of([&] { REQUIRE_CUDA(hopper::launch_value_range(core.in, w, nullptr)); }), narrow);
  report(name + " factors", time_of([&] { REQUIRE_CUDA(hopper::launch_factors(core.in, w, nullptr)); }),
         7 * narrow + wide + 2 * square);
  report(name + " scan, kept", time_of([&] { REQUIRE_CUDA(hopper::launch_scan(core.in, &core.out, w, nullptr)); }),
         6 * narrow + square + states);
  report(name + " range of dO",
         time_of([&] { REQUIRE_CUDA(hopper::launch_gradient_range(core.back, w, gradients, nullptr)); }), narrow);
  report(name + " scan back",
         time_of([&] { REQUIRE_CUDA(hopper::launch_scan_backward(core.back, w, gradients, nullptr)); }),
         5 * narrow + 2 * square + states);
  report(name + " gradients", time_of([&] { REQUIRE_CUDA(hopper::launch_gradients(core.back, w, gradients, nullptr)); }),
         9 * narrow + 2 * wide + 2 * states);
}
void parts_case(const std::string& name, const std::vector<int>& lengths, int heads, int dim) {
  Core core(lengths, heads, dim, -5.f, 0.f, true);
  core.forward(Keep::for_backward), core.backward(true);
  core.back.kept = core.kept;
  if (chunk_path(core.in.shape, core.in.type) == ChunkPath::hopper) hopper_chunk_parts(core, name);
  else plain_parts(core, name);
}
void prefill_case(const std::string& name, const std::vector<int>& lengths, int heads, int dim, float low, float high) {
  Core core(lengths, heads, dim, low, high, false);
  report(name, time_of([&] { core.forward(Keep::nothing); }), core.forward_bytes());
}

// Decode and verification: `tokens` new tokens a row, the first `commit` of them written to the state. Two pools in
// turn, so that no run finds its states in the L2; several launches between two events, because a single one carries 2
// to 5 us of launch and drain.
struct Layer {  // raw projections of `rows` rows of `tokens` tokens, weights, and one or more pools of states and
                // windows
  StepArguments a;
  std::int64_t width, all;
  int* commit = nullptr;

  Layer(int rows, int heads, int tokens, int committed, float logit_low = -4.f, float logit_high = 4.f) {
    constexpr int kDim = 128;
    width = static_cast<std::int64_t>(heads) * kDim, all = static_cast<std::int64_t>(rows) * tokens * width;
    a.rows = rows, a.heads = heads, a.dim = kDim, a.longest = tokens;
    std::vector<int> starts(rows + 1), slots(rows), commits(rows, committed);
    for (int r = 0; r <= rows; ++r) starts[r] = r * tokens;
    for (int r = 0; r < rows; ++r) slots[r] = rows - 1 - r;
    const auto integers = [](const std::vector<int>& x) {
      int* p = allocate<int>(x.size());
      REQUIRE_CUDA(cudaMemcpy(p, x.data(), x.size() * sizeof(int), cudaMemcpyHostToDevice));
      return p;
    };
    a.starts = integers(starts), a.slots = integers(slots), commit = integers(commits);
    const auto rows_of = [&](unsigned seed) { return Rows{random_bf16(all, seed), width, kDim}; };
    a.q = rows_of(1), a.k = rows_of(2), a.v = rows_of(3), a.z = rows_of(4), a.gate = rows_of(5);
    a.b = {random_bf16(static_cast<std::int64_t>(rows) * tokens * heads, 6), heads, 1};
    a.taps = random_floats(12 * width, 7, -1.f, 1.f), a.a_log = random_floats(heads, 8, -0.1f, 0.1f),
    a.dt_bias = random_floats(width, 9, logit_low, logit_high);
    a.norm_weight = random_floats(kDim, 10, 0.5f, 1.5f);
    a.y = {allocate<__nv_bfloat16>(all), width, kDim};
    new_pool(a);
  }
  void new_pool(StepArguments& pool) const {
    pool.state = random_floats(a.rows * width * a.dim, 11, -1.f, 1.f);
    pool.window = random_bf16(a.rows * 9 * width, 12);
  }
  double bytes() const {
    return a.rows * (width * a.dim * 8.0 + 9 * width * 4.0) + all * 2.0 * 6;
  }  // states, windows; q, k, v, z, gate, y
};
void step_case(const std::string& name, int rows, int heads, int tokens, int committed) {
  Layer layer(rows, heads, tokens, committed);
  StepArguments pools[2] = {layer.a, layer.a};
  for (StepArguments& pool : pools) pool.commit = layer.commit;
  layer.new_pool(pools[1]);
  const int launches = rows * heads > 1000 ? 4 : 20;
  Timing t = time_of([&] {
    for (int i = 0; i < launches; ++i) REQUIRE_CUDA(step(pools[i % 2], nullptr));
  });
  report(name, {t.median / launches, t.low / launches, t.high / launches}, layer.bytes());
}
void hopper_case(const std::string& name, int rows, int heads, int tokens, float logit_low = -4.f,
                 float logit_high = 4.f) {
  Layer layer(rows, heads, tokens, 0, logit_low, logit_high);
  void* workspace = allocate<char>(prefill_workspace_bytes(tokens, rows, heads));
  report(name, time_of([&] { REQUIRE_CUDA(prefill(layer.a, tokens, workspace, nullptr)); }), layer.bytes());
}
// Both kernels alone, the split's kernels alone, then the ways to put them together.
void hopper_parts(int rows, int heads, int tokens) {
  Layer layer(rows, heads, tokens, 0);
  const std::string size = " T" + std::to_string(tokens) + " H" + std::to_string(heads);
  constexpr std::int64_t kAll = std::int64_t{1} << 40;
  const int chunks = (tokens + 63) / 64, lines = rows * heads;
  const double blocks = static_cast<double>(lines) * chunks * prefill_detail::kBlockBytes;
  std::vector<PrefillOptions> ways = {{}};
  for (int segments : {1, 2, 4, 8, 11}) ways.push_back({.segments = segments});
  for (int state_blocks : {28, 32, 35, 40, 48}) ways.push_back({.state_blocks = state_blocks});
  if (lines <= 24) ways.push_back({.state_blocks = lines, .ranks = 2});
  std::size_t bytes = 0;
  for (PrefillOptions& way : ways) {
    way.slab_bytes = kAll;
    bytes = std::max(bytes, prefill_workspace_bytes(tokens, rows, heads, way));
  }
  auto* workspace = allocate<unsigned char>(bytes);
  const prefill_detail::Slab slab{0, chunks, 0, lines, workspace};
  const std::size_t slab_bytes = static_cast<std::size_t>(lines) * chunks * prefill_detail::kBlockStride;
  report("prefill factors alone" + size,
         time_of([&] { REQUIRE_CUDA(prefill_detail::launch_factors(layer.a, slab, nullptr)); }),
         layer.all * 8.0 + blocks);
  for (int segments : {1, 2, 4, 8}) {
    if (segments > 1 && lines > 32) break;
    const prefill_detail::Split split =
        prefill_detail::place_split(chunks, segments, rows, heads, workspace + slab_bytes);
    const std::string parts = " of " + std::to_string(segments) + " segments alone" + size;
    if (segments > 1)
      report("prefill pairs" + parts,
             time_of([&] { REQUIRE_CUDA(prefill_detail::launch_split(layer.a, slab, split, nullptr)); }),
             blocks * 2 / 3);
    report("prefill state" + parts,
           time_of([&] { REQUIRE_CUDA(prefill_detail::launch_state(layer.a, slab, split, nullptr)); }),
           layer.all * 4.0 + blocks);
  }
  for (const PrefillOptions& way : ways) {
    if (way.state_blocks > lines || (way.segments > 1 && lines > 32)) continue;
    const std::string name = way.state_blocks ? std::to_string(way.state_blocks) + " state blocks" +
                                                    (way.ranks > 1 ? " of two multiprocessors" : "")
                             : way.segments   ? std::to_string(way.segments) + " segments"
                                              : "planned";
    report("prefill, " + name + size, time_of([&] { REQUIRE_CUDA(prefill(layer.a, tokens, workspace, nullptr, way)); }),
           layer.bytes());
  }
}

struct Bench {
  std::string name;
  std::function<void()> run;
};
std::vector<Bench> benches() {
  return {
      {"train-nano", [] { train_case("train 65536x4x64 packed", packed_lengths(65536), 4, 64); }},
      {"train-nano-parts", [] { parts_case("train 65536x4x64", packed_lengths(65536), 4, 64); }},
      {"decode",
       [] {
         for (int rows : {1, 8, 32, 128}) step_case("decode H96 batch " + std::to_string(rows), rows, 96, 1, 1);
         step_case("decode H12 batch 32", 32, 12, 1, 1);
       }},
      {"verify",
       [] {
         step_case("verify 8 tokens H96 batch 32", 32, 96, 8, 1);
         step_case("verify 4 replayed + 8 tokens H96 batch 32", 32, 96, 12, 4);
         step_case("verify 16 tokens H96 batch 32", 32, 96, 16, 1);
       }},
      {"hopper-h96",
       [] {
         hopper_case("prefill T8192 H96, conv gate norm fused", 1, 96, 8192);
         hopper_case("prefill T8192 H96, long memory", 1, 96, 8192, -12.f, -8.f);
       }},
      {"hopper-parts", [] { hopper_parts(1, 96, 8192), hopper_parts(1, 32, 8192), hopper_parts(1, 12, 8192); }},
      {"hopper-1m", [] { hopper_case("prefill one sequence of 1M tokens H12", 1, 12, 1 << 20); }},
      {"hopper-h32", [] { hopper_case("prefill T8192 H32", 1, 32, 8192); }},
      {"hopper-h12",
       [] {
         hopper_case("prefill T8192 H12", 1, 12, 8192);
         hopper_case("prefill T8192 H12, long memory", 1, 12, 8192, -12.f, -8.f);
       }},
      {"hopper-ranks",
       [] {
         hopper_case("prefill T8192 H24", 1, 24, 8192);
         hopper_case("prefill T8192 H24, long memory", 1, 24, 8192, -12.f, -8.f);
         hopper_case("prefill T8192 H16", 1, 16, 8192);
         hopper_case("prefill T2048 H12", 1, 12, 2048);
       }},
      {"hopper-4xh96", [] { hopper_case("prefill 4 x 8192 H96", 4, 96, 8192); }},
      {"train-h96", [] { train_case("train T8192 H96 D128", {8192}, 96, 128); }},
      {"train-h96-parts", [] { parts_case("train T8192 H96 D128", {8192}, 96, 128); }},
      {"prefill-h96",
       [] {
         prefill_case("plain prefill T8192 H96 D128", {8192}, 96, 128, -5.f, 0.f);
         prefill_case("plain prefill T8192 H96 D128, long memory", {8192}, 96, 128, -0.01f, 0.f);
       }},
      {"prefill-h12", [] { prefill_case("plain prefill T8192 H12 D128", {8192}, 12, 128, -5.f, 0.f); }},
  };
}

}  // namespace

int main(int argc, char** argv) {
  const auto all = benches();
  if (argc < 2 || !std::strcmp(argv[1], "list")) {
    for (const Bench& bench : all) std::printf("%s\n", bench.name.c_str());
    return 0;
  }
  ceiling = copy_bytes_per_us();
  std::printf("device copy %.2f TB/s\n", ceiling * 1e-6);
  bool ran = false;
  for (const Bench& bench : all)
    for (int i = 1; i < argc; ++i)
      if (bench.name == argv[i]) bench.run(), ran = true;
  return ran ? 0 : 1;
}
