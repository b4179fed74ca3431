// Host side of the chunk forms: argument checks, which form runs, workspace layout and order of the launches of the
// plain one; and the plan kernel (kda.h, step 1) of both.
#include <algorithm>

#include "kernels/cuda/kda/chunk_hopper.cuh"
#include "kernels/cuda/kda/chunk_workspace.cuh"

namespace k3::cuda::kda {
namespace {

constexpr int kPlanThreads = 1024;

// chunk_starts = running sum of ceil(length / tokens). One block; a thread owns a run of sequences.
__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(const int* starts, int sequences, int tokens, int* chunk_starts, ChunkPlace* places,
                std::int64_t count) {
  int* sums = shared_memory<int>();
  const int thread = threadIdx.x, run = (sequences + kPlanThreads - 1) / kPlanThreads;
  const int begin = min(sequences, thread * run), end = min(sequences, begin + run);
  int own = 0;
  for (int n = begin; n < end; ++n) own += (starts[n + 1] - starts[n] + tokens - 1) / tokens;
  sums[thread] = own;
  __syncthreads();
  for (int step = 1; step < kPlanThreads; step *= 2) {
    const int before = thread >= step ? sums[thread - step] : 0;
    __syncthreads();
    sums[thread] += before;
    __syncthreads();
  }
  int next = sums[thread] - own;
  for (int n = begin; n < end; ++n) {
    chunk_starts[n] = next;
    next += (starts[n + 1] - starts[n] + tokens - 1) / tokens;
  }
  if (thread == kPlanThreads - 1) chunk_starts[sequences] = sums[thread];
  if (!places) return;
  __syncthreads();
  for (std::int64_t chunk = thread; chunk < count; chunk += kPlanThreads) {
    ChunkPlace place{};
    find_chunk<hopper::kTokens>(static_cast<int>(chunk), chunk_starts, starts, sequences, place);
    places[chunk] = place;
  }
}

bool valid(const Shape& s) {
  return s.tokens >= 0 && s.tokens <= INT32_MAX - hopper::kTokens && s.sequences >= 0 && s.heads > 0 &&
         s.heads <= 65535 && (s.dim == 32 || s.dim == 64 || s.dim == 128) && (s.tokens == 0 || s.sequences > 0);
}
bool valid(const void* data, std::int64_t token_stride, std::int64_t head_stride, Type type, std::int64_t tokens) {
  const std::uintptr_t step = type == Type::fp32 ? 16 : 8;
  return tokens == 0 ||
         (data && reinterpret_cast<std::uintptr_t>(data) % step == 0 && token_stride % 4 == 0 && head_stride % 4 == 0);
}
bool valid(const Rows& r, Type type, std::int64_t tokens) {
  return valid(r.data, r.token_stride, r.head_stride, type, tokens);
}
bool valid(const MutableRows& r, Type type, std::int64_t tokens) {
  return valid(r.data, r.token_stride, r.head_stride, type, tokens);
}
bool valid(const ForwardInputs& in) {
  const std::int64_t tokens = in.shape.tokens;
  return valid(in.shape) && (in.starts || in.shape.sequences == 0) && valid(in.q, in.type, tokens) &&
         valid(in.k, in.type, tokens) && valid(in.v, in.type, tokens) && valid(in.g, Type::fp32, tokens) &&
         (in.beta.data || tokens == 0);
}

}  // namespace

std::size_t place(ChunkWorkspace& w, const Shape& shape, Keep keep, void* base) {
  Layout layout(base);
  const std::int64_t tiles = max_chunks(shape) * shape.heads, rows = tiles * kChunk, dim = shape.dim;
  layout.add(w.chunk_starts, shape.sequences + 1);
  layout.add(w.weighted_keys, rows * dim);
  layout.add(w.weighted_values, rows * dim);
  layout.add(w.restored_keys, rows * dim);
  layout.add(w.decayed_queries, rows * dim);
  layout.add(w.scores, rows * kChunk);
  layout.add(w.chunk_decay, tiles * dim);
  w.inverse = w.states = w.residuals = nullptr;
  if (keep == Keep::for_backward) {
    layout.add(w.inverse, rows * kChunk);
    layout.add(w.states, tiles * dim * dim);
    layout.add(w.residuals, rows * dim);
  }
  return layout.bytes();
}
std::size_t place(BackwardWorkspace& w, const Shape& shape, void* base) {
  Layout layout(base);
  const std::int64_t tiles = max_chunks(shape) * shape.heads, dim = shape.dim;
  layout.add(w.d_states, tiles * dim * dim);
  layout.add(w.d_residuals, tiles * kChunk * dim);
  return layout.bytes();
}

cudaError_t launch_plan(const ForwardInputs& in, int chunk_tokens, int* chunk_starts, ChunkPlace* places,
                        std::int64_t place_count, cudaStream_t stream) {
  return launch(plan_kernel, dim3(1), kPlanThreads, kPlanThreads * sizeof(int), stream, in.starts, in.shape.sequences,
                chunk_tokens, chunk_starts, places, place_count);
}

ChunkPath chunk_path(const Shape& shape, Type type) {
  const bool fits = type == Type::bf16 && (shape.dim == 64 || shape.dim == 128);
  return fits && device_capability() == 90 ? ChunkPath::hopper : ChunkPath::plain;
}

// Enough for either form: which one runs depends on the type of the inputs too.
std::size_t forward_workspace_bytes(const Shape& shape, Keep keep) {
  ChunkWorkspace workspace;
  std::size_t bytes = place(workspace, shape, keep, nullptr);
  hopper::Workspace wide;
  if (chunk_path(shape, Type::bf16) == ChunkPath::hopper)
    bytes = std::max(bytes, hopper::place(wide, shape, keep, nullptr));
  return bytes;
}
std::size_t backward_workspace_bytes(const Shape& shape, bool kept) {
  const auto again = [&](std::size_t forward) { return kept ? 0 : forward; };
  BackwardWorkspace gradients;
  ChunkWorkspace workspace;
  std::size_t bytes =
      place(gradients, shape, nullptr) + again(place(workspace, shape, Keep::for_backward, nullptr));
  hopper::Gradients wide;
  hopper::Workspace tiles;
  if (chunk_path(shape, Type::bf16) == ChunkPath::hopper)
    bytes = std::max(bytes, hopper::place(wide, shape, nullptr) +
                                again(hopper::place(tiles, shape, Keep::for_backward, nullptr)));
  return bytes;
}

cudaError_t forward(const ForwardInputs& in, const ForwardOutputs& out, Keep keep, void* workspace,
                    cudaStream_t stream) {
  if (!valid(in) || !valid(out.o, out.type, in.shape.tokens) || (!workspace && in.shape.sequences > 0))
    return cudaErrorInvalidValue;
  if (in.shape.sequences == 0) return cudaSuccess;
  if (chunk_path(in.shape, in.type) == ChunkPath::hopper) return hopper::forward(in, out, keep, workspace, stream);
  ChunkWorkspace tiles;
  place(tiles, in.shape, keep, workspace);
  if (const cudaError_t error = launch_plan(in, kChunk, tiles.chunk_starts, nullptr, 0, stream); error != cudaSuccess)
    return error;
  if (const cudaError_t error = launch_factors(in, tiles, stream); error != cudaSuccess) return error;
  return launch_scan(in, &out, tiles, stream);
}

cudaError_t backward(const BackwardArguments& a, void* workspace, cudaStream_t stream) {
  const ForwardInputs& in = a.inputs;
  const std::int64_t tokens = in.shape.tokens;
  if (!valid(in) || !valid(a.d_o, a.output_type, tokens) || !valid(a.dq, in.type, tokens) ||
      !valid(a.dk, in.type, tokens) || !valid(a.dv, in.type, tokens) || !valid(a.dg, Type::fp32, tokens) ||
      (!a.dbeta.data && tokens > 0) || (!workspace && in.shape.sequences > 0))
    return cudaErrorInvalidValue;
  if (in.shape.sequences == 0) return cudaSuccess;
  if (chunk_path(in.shape, in.type) == ChunkPath::hopper) return hopper::backward(a, workspace, stream);
  BackwardWorkspace gradients;
  ChunkWorkspace tiles;
  const std::size_t used = place(gradients, in.shape, workspace);
  if (a.kept) {
    place(tiles, in.shape, Keep::for_backward, const_cast<void*>(a.kept));  // read only below
  } else {
    place(tiles, in.shape, Keep::for_backward, static_cast<char*>(workspace) + used);
    if (const cudaError_t error = launch_plan(in, kChunk, tiles.chunk_starts, nullptr, 0, stream);
        error != cudaSuccess)
      return error;
    if (const cudaError_t error = launch_factors(in, tiles, stream); error != cudaSuccess) return error;
    if (const cudaError_t error = launch_scan(in, nullptr, tiles, stream); error != cudaSuccess) return error;
  }
  if (const cudaError_t error = launch_scan_backward(a, tiles, gradients, stream); error != cudaSuccess) return error;
  return launch_gradients(a, tiles, gradients, stream);
}

}  // namespace k3::cuda::kda
