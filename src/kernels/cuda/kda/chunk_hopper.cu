// Host side of the fp16 chunk form (chunk_hopper.cuh): workspace layout, the order of the
// launches; and the kernels that find the largest value and output gradient of a sequence and head (maxima of bits, so
// the order of the blocks does not matter).
#include "kernels/cuda/kda/chunk_hopper.cuh"
#include "kernels/cuda/kda/chunk_tiles.cuh"

namespace k3::cuda::kda::hopper {
namespace {

constexpr int kThreads = 256;

// Magnitudes are compared as bits, in which NaN is the largest.
__device__ __forceinline__ void add_block_maximum(std::uint32_t largest, std::uint32_t* out) {
  std::uint32_t* warps = shared_memory<std::uint32_t>();
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) largest = max(largest, bits_of(shuffle_xor(from_bits(largest), step)));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < kThreads / 32; ++i) largest = max(largest, warps[i]);
  atomic_maximum(out, largest);
}

// Largest |x| of a chunk and head, and of state / 1024 in the block of the first chunk of a sequence. Sequences without
// tokens keep 0, which means a factor of 1.
template <int kDim, class E>
__global__ void __launch_bounds__(kThreads)
    range_kernel(const __grid_constant__ ForwardInputs in, const __grid_constant__ Rows rows, const float* state,
                 const ChunkPlace* places, std::uint32_t* largest_of) {
  constexpr int kLanes = kDim / 4, kRows = kThreads / kLanes, kTurns = kTokens / kRows;
  const int heads = in.shape.heads, head = blockIdx.x % heads, chunk = blockIdx.x / heads;
  const ChunkPlace place = places[chunk];
  if (place.rows == 0) return;
  std::uint32_t largest = 0;
  const auto add = [&](float4 x, float weight) {
    largest = max(max(largest, bits_of(weight * fabsf(x.x))), bits_of(weight * fabsf(x.y)));
    largest = max(max(largest, bits_of(weight * fabsf(x.z))), bits_of(weight * fabsf(x.w)));
  };
  const int first = threadIdx.x / kLanes;
  Column<const E> from(rows, place.first_token + first, head, threadIdx.x % kLanes * 4, kRows);
  float4 x[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const E* at = from.next();
    x[i] = first + i * kRows < place.rows ? load4(at) : make_float4(0.f, 0.f, 0.f, 0.f);
  }
#pragma unroll
  for (int i = 0; i < kTurns; ++i) add(x[i], 1.f);
  const std::int64_t owner = static_cast<std::int64_t>(place.sequence) * heads + head;
  if (state && place.first_token == in.starts[place.sequence])
    for (int i = threadIdx.x; i < kDim * kDim / 4; i += kThreads)
      add(load4(state + owner * kDim * kDim + i * 4), 1.f / 1024);
  add_block_maximum(largest, largest_of + owner);
}

template <class E>
cudaError_t launch_range(const ForwardInputs& in, const Rows& rows, const float* state, const Workspace& workspace,
                         std::uint32_t* largest_of, cudaStream_t stream) {
  const std::size_t bytes = sizeof(std::uint32_t) * in.shape.sequences * in.shape.heads;
  if (const cudaError_t error = clear_async(largest_of, bytes, stream); error != cudaSuccess) return error;
  if (in.shape.tokens == 0) return cudaSuccess;
  return launch(in.shape.dim == 64 ? range_kernel<64, E> : range_kernel<128, E>,
                dim3(static_cast<unsigned>(most_chunks(in.shape) * in.shape.heads)), kThreads,
                kThreads / 32 * sizeof(std::uint32_t), stream, in, rows, state, workspace.places, largest_of);
}

template <int kDim>
std::size_t place_as(Workspace& w, const Shape& shape, Keep keep, void* base) {
  Layout layout(base);
  const std::int64_t tiles = most_chunks(shape) * shape.heads;
  layout.add(w.chunk_starts, shape.sequences + 1);
  layout.add(w.places, most_chunks(shape));
  layout.add(w.largest_v, static_cast<std::int64_t>(shape.sequences) * shape.heads);
  layout.add(w.records, tiles * Record<kDim>::kStride);
  w.inverse = w.states = w.residuals = nullptr;
  if (keep == Keep::for_backward) {
    layout.add(w.inverse, tiles * kPanelBytes);
    layout.add(w.states, tiles * Record<kDim>::kState);
    layout.add(w.residuals, tiles * Record<kDim>::kOperand);
  }
  return layout.bytes();
}
template <int kDim>
std::size_t place_as(Gradients& g, const Shape& shape, void* base) {
  Layout layout(base);
  const std::int64_t tiles = most_chunks(shape) * shape.heads;
  layout.add(g.largest_d, static_cast<std::int64_t>(shape.sequences) * shape.heads);
  layout.add(g.d_states, tiles * Record<kDim>::kState);
  layout.add(g.d_weighted, tiles * Record<kDim>::kOperand);
  return layout.bytes();
}
// States, residuals and, with `outputs`, o.
cudaError_t run_forward(const ForwardInputs& in, const ForwardOutputs* outputs, const Workspace& workspace,
                        cudaStream_t stream) {
  cudaError_t error = launch_plan(in, workspace, stream);
  if (error == cudaSuccess) error = launch_value_range(in, workspace, stream);
  if (error == cudaSuccess) error = launch_factors(in, workspace, stream);
  if (error == cudaSuccess) error = launch_scan(in, outputs, workspace, stream);
  return error;
}

}  // namespace

std::size_t place(Workspace& w, const Shape& shape, Keep keep, void* base) {
  return shape.dim == 64 ? place_as<64>(w, shape, keep, base) : place_as<128>(w, shape, keep, base);
}
std::size_t place(Gradients& g, const Shape& shape, void* base) {
  return shape.dim == 64 ? place_as<64>(g, shape, base) : place_as<128>(g, shape, base);
}

cudaError_t launch_plan(const ForwardInputs& in, const Workspace& workspace, cudaStream_t stream) {
  return kda::launch_plan(in, kTokens, workspace.chunk_starts, workspace.places, most_chunks(in.shape), stream);
}
cudaError_t launch_value_range(const ForwardInputs& in, const Workspace& workspace, cudaStream_t stream) {
  return launch_range<__nv_bfloat16>(in, in.v, in.initial_state, workspace, workspace.largest_v, stream);
}
cudaError_t launch_gradient_range(const BackwardArguments& a, const Workspace& workspace, const Gradients& gradients,
                                  cudaStream_t stream) {
  return a.output_type == Type::fp32
             ? launch_range<float>(a.inputs, a.d_o, a.d_final_state, workspace, gradients.largest_d, stream)
             : launch_range<__nv_bfloat16>(a.inputs, a.d_o, a.d_final_state, workspace, gradients.largest_d, stream);
}

cudaError_t forward(const ForwardInputs& in, const ForwardOutputs& out, Keep keep, void* workspace,
                    cudaStream_t stream) {
  Workspace tiles;
  place(tiles, in.shape, keep, workspace);
  return run_forward(in, &out, tiles, stream);
}
cudaError_t backward(const BackwardArguments& a, void* workspace, cudaStream_t stream) {
  Gradients gradients;
  Workspace tiles;
  const std::size_t used = place(gradients, a.inputs.shape, workspace);
  cudaError_t error = cudaSuccess;
  if (a.kept) {
    place(tiles, a.inputs.shape, Keep::for_backward, const_cast<void*>(a.kept));  // read only below
  } else {
    place(tiles, a.inputs.shape, Keep::for_backward, static_cast<char*>(workspace) + used);
    error = run_forward(a.inputs, nullptr, tiles, stream);
  }
  if (error == cudaSuccess) error = launch_gradient_range(a, tiles, gradients, stream);
  if (error == cudaSuccess) error = launch_scan_backward(a, tiles, gradients, stream);
  if (error == cudaSuccess) error = launch_gradients(a, tiles, gradients, stream);
  return error;
}

}  // namespace k3::cuda::kda::hopper
