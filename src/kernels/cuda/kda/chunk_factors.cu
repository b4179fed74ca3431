// Step 2 of kda.h: everything of a chunk that does not depend on the state. One block of four warps per chunk and head.
//   G = running sum of g;  A_ij = scale q_i . (k_j e^(G_i - G_j)), i >= j;  L_ij = beta_i k_i . (k_j e^(G_i - G_j)), i
//   > j
//   T = (I + L)^-1;  W = T (beta k e^G);  U = T (beta v);  Kb = k e^(G_C - G);  Qd = scale q e^G
// The pairs are summed on the CUDA cores in fp32, differences before exp, so no gate can overflow a used entry;
// entries above the diagonal
// may be infinite and are removed by a select. T comes from forward substitution, one lane a column: products of (I -
// L) powers
// lose everything for correlated keys.
#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/cuda/kda/chunk_tiles.cuh"

namespace k3::cuda::kda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kPairPitch = kChunk + 4;

template <int kDim>
struct Shared {
  static constexpr int kPitch = kDim + 4;
  float q[kChunk * kPitch], k[kChunk * kPitch], v[kChunk * kPitch], decay[kChunk * kPitch];
  float scores[kChunk * kPairPitch], lower[kChunk * kPairPitch], inverse[kChunk * kPairPitch];
  float beta[kChunk];
};

// 32 values in each of 32 lanes -> lane i holds the sum over the lanes of value i.
template <int kWidth = 16>
__device__ __forceinline__ float sum_across_lanes(float (&value)[32]) {
  fold_lanes(value, kWidth, threadIdx.x, kWidth);
  if constexpr (kWidth > 1) return sum_across_lanes<kWidth / 2>(value);
  return value[0];
}

// Entries of A and L for 4 x 4 rows by one warp, lanes across the channels.
template <int kDim>
__device__ __forceinline__ void pair_block(Shared<kDim>& s, int row0, int column0, float scale) {
  constexpr int kPitch = Shared<kDim>::kPitch;
  const int lane = threadIdx.x % 32;
  float sums[32];
#pragma unroll
  for (float& x : sums) x = 0.f;
#pragma unroll
  for (int channel = lane; channel < kDim; channel += 32) {
    float q[4], k[4], decay[4], other_k[4], other_decay[4];
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      q[a] = s.q[(row0 + a) * kPitch + channel];
      k[a] = s.k[(row0 + a) * kPitch + channel];
      decay[a] = s.decay[(row0 + a) * kPitch + channel];
      other_k[a] = s.k[(column0 + a) * kPitch + channel];
      other_decay[a] = s.decay[(column0 + a) * kPitch + channel];
    }
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const float decayed = other_k[b] * fast_exp2(decay[a] - other_decay[b]);
        sums[4 * a + b] += q[a] * decayed;
        sums[16 + 4 * a + b] += k[a] * decayed;
      }
  }
  const float total = sum_across_lanes(sums);
  const int row = row0 + lane % 16 / 4, column = column0 + lane % 4;
  if (lane < 16) {
    s.scores[row * kPairPitch + column] = column <= row ? total * scale : 0.f;
  } else {
    s.lower[row * kPairPitch + column] = column < row ? total * s.beta[row] : 0.f;
  }
}

// Column `lane` of (I + L)^-1 by forward substitution.
template <int kDim>
__device__ __forceinline__ void invert(Shared<kDim>& s) {
  const int lane = threadIdx.x % 32;
  float x[kChunk];
#pragma unroll
  for (int row = 0; row < kChunk; ++row) {
    float even = row == lane ? 1.f : 0.f, odd = 0.f;
#pragma unroll
    for (int j = 0; j < row; ++j) {
      const float entry = s.lower[row * kPairPitch + j];
      if (j % 2) odd -= entry * x[j];
      else even -= entry * x[j];
    }
    x[row] = even + odd;
    s.inverse[row * kPairPitch + lane] = x[row];
  }
}

template <int kDim, class E>
__global__ void __launch_bounds__(kThreads) factors_kernel(ForwardInputs in, ChunkWorkspace out) {
  constexpr bool kExact = std::is_same_v<E, float>;
  constexpr int kPitch = Shared<kDim>::kPitch, kPieces = kDim / 4;
  Shared<kDim>& s = *shared_memory<Shared<kDim>>();
  const int chunk = blockIdx.x, head = blockIdx.y, thread = threadIdx.x, warp = thread / 32;
  ChunkPlace place;
  if (!find_chunk(chunk, out.chunk_starts, in.starts, in.shape.sequences, place)) return;
  const std::int64_t tile = static_cast<std::int64_t>(chunk) * in.shape.heads + head;

  load_rows<E, kDim, kPitch, kThreads>(s.q, in.q, place, head, 0);
  load_rows<E, kDim, kPitch, kThreads>(s.k, in.k, place, head, 0);
  load_rows<E, kDim, kPitch, kThreads>(s.v, in.v, place, head, 0);
  load_rows<float, kDim, kPitch, kThreads>(s.decay, in.g, place, head, 0);
  if (thread < kChunk)
    s.beta[thread] = thread < place.rows ? *row_pointer<float>(in.beta, place.first_token + thread, head) : 0.f;
  for (int i = thread; i < kChunk * kPairPitch; i += kThreads) s.scores[i] = s.lower[i] = 0.f;
  __syncthreads();
  accumulate_decay<kDim, kPitch, kThreads>(s.decay);
  __syncthreads();

  constexpr int kBlocks = kChunk / 4, kLowerBlocks = kBlocks * (kBlocks + 1) / 2;
  for (int task = warp; task < kLowerBlocks; task += kWarps) {
    int row = 0;
    while ((row + 1) * (row + 2) / 2 <= task) ++row;
    pair_block<kDim>(s, 4 * row, 4 * (task - row * (row + 1) / 2), in.scale);
  }
  __syncthreads();

  if (warp == 0) {
    invert(s);
  } else {
    for (int i = thread - 32; i < kChunk * kPieces; i += kThreads - 32) {
      const int row = i / kPieces, column = i % kPieces * 4;
      const float4 q = *reinterpret_cast<float4*>(s.q + row * kPitch + column),
                   k = *reinterpret_cast<float4*>(s.k + row * kPitch + column);
      const float4 g = *reinterpret_cast<float4*>(s.decay + row * kPitch + column);
      const float4 last = *reinterpret_cast<float4*>(s.decay + (kChunk - 1) * kPitch + column);
      const std::int64_t at = tile * kChunk * kDim + row * kDim + column;
      *reinterpret_cast<float4*>(out.decayed_queries + at) =
          make_float4(in.scale * q.x * fast_exp2(g.x), in.scale * q.y * fast_exp2(g.y), in.scale * q.z * fast_exp2(g.z),
                      in.scale * q.w * fast_exp2(g.w));
      *reinterpret_cast<float4*>(out.restored_keys + at) =
          make_float4(k.x * fast_exp2(last.x - g.x), k.y * fast_exp2(last.y - g.y), k.z * fast_exp2(last.z - g.z),
                      k.w * fast_exp2(last.w - g.w));
      if (row == kChunk - 1)
        *reinterpret_cast<float4*>(out.chunk_decay + tile * kDim + column) =
            make_float4(fast_exp2(last.x), fast_exp2(last.y), fast_exp2(last.z), fast_exp2(last.w));
    }
  }
  __syncthreads();

  for (int i = thread; i < kChunk * kDim; i += kThreads) {
    const int row = i / kDim, at = row * kPitch + i % kDim;
    s.k[at] *= s.beta[row] * fast_exp2(s.decay[at]);
    s.v[at] *= s.beta[row];
  }
  for (int i = thread; i < kChunk * kChunk; i += kThreads) {
    const int at = i / kChunk * kPairPitch + i % kChunk;
    out.scores[tile * kChunk * kChunk + i] = s.scores[at];
    if (out.inverse) out.inverse[tile * kChunk * kChunk + i] = s.inverse[at];
  }
  __syncthreads();

  constexpr int kColumns = kDim / kWarps;  // of one warp
  using Product = WarpTile<2, kColumns / 8>;
  const int column0 = warp * kColumns;
  const auto inverse = [&](int i, int j) { return s.inverse[i * kPairPitch + j]; };
  const auto product = [&](const float* right, float* destination) {
    Product sum;
    sum.clear();
    multiply<kChunk, kExact>(sum, inverse, [&](int j, int column) { return right[j * kPitch + column0 + column]; });
    sum.each_pair([&](int row, int column, float x, float y) {
      store2(destination + tile * kChunk * kDim + row * kDim + column0 + column, x, y);
    });
  };
  product(s.k, out.weighted_keys);
  product(s.v, out.weighted_values);
}

}  // namespace

cudaError_t launch_factors(const ForwardInputs& in, const ChunkWorkspace& workspace, cudaStream_t stream) {
  if (in.shape.tokens == 0) return cudaSuccess;
  return dispatch(in.shape.dim, in.type, [&]<int kDim, class E>() {
    return launch(factors_kernel<kDim, E>, dim3(static_cast<unsigned>(max_chunks(in.shape)), in.shape.heads), kThreads,
                  sizeof(Shared<kDim>), stream, in, workspace);
  });
}

}  // namespace k3::cuda::kda
