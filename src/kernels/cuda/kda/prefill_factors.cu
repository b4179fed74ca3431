// The factor kernel of prefill.h: everything of a chunk of 64 tokens that does not depend on the state, from the raw
// projections. Blocks of eight warps, two a multiprocessor, walk over the chunks; per chunk
//   1 convolution, SiLU, sums of squares, alpha = e^g                      a thread: two channels, 16 tokens
//   2 operands relative to the tile of 16 tokens (prefill_factors_channels.cuh); Qd and Kb leave for memory
//   3 A and M, tile by tile; T_II = (I + L_II)^-1 of the four diagonal tiles   L = diag(beta) M
//   4 W and U by block substitution, X_I = T_II diag(beta_I) (B_I - sum_J M_IJ X_J)    (prefill_factors_tiles.cuh)
// In step 4 the copy engine already brings the raw rows of the next chunk, and the L2 was asked for them in step 2.
// Substitution sees the rounded X_J, so that the error of a rounding is corrected by the tokens behind it; M keeps the
// rest of its rounding in a second bf16 number.
// Floors of a chunk and head: 138 KB of memory traffic, 4.3 us of a multiprocessor's share of 4.2 TB/s (0.41 ms at
// T 8192 H 96); 9 special functions a channel and token, 4700 cycles; about 3400 instructions a warp, 6800 cycles.
#include <algorithm>
#include <limits>

#include "kernels/cuda/common/chained_launch.cuh"
#include "kernels/cuda/kda/prefill_factors_channels.cuh"
#include "kernels/cuda/kda/prefill_factors_tiles.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {
using namespace factors;

// The two channels and the tile of a thread. Early tiles have more operands: tiles 0 and 3 share their schedulers, and
// tiles 1 and 2 theirs.
struct Place {
  int warp, lane, tile, channel;
  __device__ __forceinline__ explicit Place(int thread)
      : warp(thread / 32), lane(thread % 32), tile(warp / 2 ^ warp / 4), channel(thread % 64 * 2) {}
};

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    factors_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab,
                   const __grid_constant__ InputMaps maps) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  release_next_kernel();
  unsigned char* shared = shared_memory<unsigned char>();
  const uint32_t address = shared_address(shared);
  float* beta = reinterpret_cast<float*>(shared + kBeta);
  float* squares = reinterpret_cast<float*>(shared + kSquares);

  for (int i = threadIdx.x; i < kPanel / 4; i += kThreads) reinterpret_cast<uint32_t*>(shared + kScoresOut)[i] = 0;
  Work* works = reinterpret_cast<Work*>(shared + kWorks);
  uint32_t raw_v[kTile + 3] = {};
  __nv_bfloat16 beta_logit{};
  float speed_logit = 0;
  const auto start = [&](const Work& w) {
    const int thread = own_thread();
    const Place place(thread);
#pragma unroll
    for (uint32_t& x : raw_v) x = 0;  // not carried around the loop
    beta_logit = __nv_bfloat16(), speed_logit = 0;
    if (w.index < 0) return;
    if (w.count < kChunk) fetch(shared, a, w, thread);
    else if (place.lane == 0) fetch_boxes(address, a, maps, w, place.warp);
    fetch_values(raw_v, a, w, place.tile * kTile, place.channel);
    if (thread < w.count) beta_logit = *(at_raw(a.b, w.b) + thread * static_cast<int>(a.b.token_stride));
    if (thread == kChunk) speed_logit = a.a_log[w.head];
  };
  if (threadIdx.x == 0) {
    works[2].row = -1;
    find_work(works[0], works[2], blockIdx.x, a, slab);
    find_work(works[1], works[0], works[0].index + static_cast<int>(gridDim.x), a, slab);
    barrier_init(address + kArrived, 1);
    barrier_init_fence();
  }
  __syncthreads();
  start(works[0]);
  int parity = 0;
  for (int turn = 0; works[turn].index >= 0; turn = turn == 2 ? 0 : turn + 1) {
    const Work &work = works[turn], &next = works[turn == 2 ? 0 : turn + 1];
    const bool boxes = work.count == kChunk;
    if (const int token = threadIdx.x; token < kChunk)
      beta[token] = token < work.count ? fast_sigmoid(load1(&beta_logit)) : 0.f;
    if (threadIdx.x == kChunk) *reinterpret_cast<float*>(shared + kSpeed) = fast_exp(speed_logit);
    if (boxes) barrier_wait(address + kArrived, parity), parity ^= 1;
    else copy_async_wait<0>();
    if (boxes && work.first) patch_window(shared, a, work, own_thread());
    __syncthreads();  // the raw rows are here

    // ---- 1
    const int thread = own_thread();
    const auto [warp, lane, tile, channel] = Place(thread);
    const int row0 = tile * kTile, count = max(0, min(kTile, work.count - row0));
    const unsigned char* taps = shared + kTapsAt + channel * kTaps * 4;
    uint32_t q[kTile], k[kTile];
    float sums[kTile];
    const unsigned char* raw = shared + row0 * kRowBytes + channel * 2;
    convolve<true>(q, sums, taps, [&](int i) { return word_at(raw + kRawQ + i * kRowBytes); });
    const float q_squares = fold_tokens(sums);
    cut(q, count);
    convolve<true>(k, sums, taps + kDim * kTaps * 4,
                   [&](int i) { return word_at(raw + kRawK + i * kRowBytes); });
    const float k_squares = fold_tokens(sums);
    cut(k, count);
    if (thread == 0) bulk_wait_read<0>();
    __syncthreads();  // W, U and A of the chunk before have left
    {
      uint32_t v[kTile];
      convolve<false>(v, sums, taps + 2 * kDim * kTaps * 4, [&](int i) { return raw_v[i]; });
      cut(v, count);
#pragma unroll
      for (int i = 0; i < kTile; ++i)
        put_word(at_token(shared + kValues + channel / 64 * kPanel + tile * kTilePanel, channel % 64 * 2, i), v[i]);
    }
    if (lane < kTile) {
      squares[(warp % 2) * kChunk + row0 + lane] = q_squares;
      squares[(2 + warp % 2) * kChunk + row0 + lane] = k_squares;
    }
    float2 alpha[kTile];
    const float2 decay = gates(alpha, [&](int i) { return word_at(raw + kRawZ + i * kRowBytes); },
                               *reinterpret_cast<const float2*>(shared + kBias + channel * 4),
                               *reinterpret_cast<const float*>(shared + kSpeed), a.lower_bound, count);
    *reinterpret_cast<float2*>(shared + kTileDecay + (tile * kDim + channel) * 4) = decay;
    __syncthreads();
    if (next.index >= 0) announce(a, maps, next, own_thread());

    // ---- 2
    {
      const int thread = own_thread();
      const auto [warp, lane, tile, channel] = Place(thread);
      const int which = lane / kTile, token = lane % kTile, at = tile * kTile + token;
      const float* sums = squares + 2 * which * kChunk + at;
      const float length = at < work.count ? inverse_sqrt(sums[0] + sums[kChunk] + 1e-6f) : 0.f;
      float2* lengths = reinterpret_cast<float2*>(shared + kLengths) + warp * kTile;
      reinterpret_cast<float*>(lengths)[2 * token + which] = which ? length : length * 0.08838834764831845f;
      if (const int key = thread - kThreads / 2; key >= 0) {  // the warps with few operands
        const float* decays = reinterpret_cast<const float*>(shared + kTileDecay) + key;
        reinterpret_cast<float*>(shared + kDecayOut)[key] =
            decays[0] * decays[kDim] * decays[2 * kDim] * decays[3 * kDim];
      }
      __syncwarp();
      put_operands(shared, slab.blocks + work.block, q, k, alpha, lengths, tile, channel);
    }
    __syncthreads();

    // ---- 3
    if (const int warp = own_thread() / 32; warp < kTiles) {
      multiply_tile<true>(shared, address, warp);
      __syncwarp();
      invert_diagonal(shared, warp);
    } else {
      if (threadIdx.x == kThreads - 1)
        find_work(works[turn == 0 ? 2 : turn - 1], next, next.index + static_cast<int>(gridDim.x), a, slab);
      for (int i = warp - kTiles; i < 6; i += kTiles) multiply_tile<false>(shared, address, i);
    }
    async_proxy_fence();
    __syncthreads();

    // ---- 4
    start(next);
    substitute(shared, address, own_thread() / 32);
    async_proxy_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned char* block = slab.blocks + work.block;
      bulk_copy_out(block + kWeightedKeys, address + kRowsK, 2 * kPanel);
      bulk_copy_out(block + kWeightedValues, address + kValues, 2 * kPanel);
      bulk_copy_out(block + kScores, address + kScoresOut, kPanel + kDim * 4);
      bulk_commit();
    }
  }
  if (threadIdx.x == 0) bulk_wait_read<0>();
#endif  // elsewhere prefill_supported() is false and nobody launches it
}

// 16-byte copies of q, k, z, window, taps and bias, 4-byte loads of v; offsets inside a chunk in 32 bits.
bool reachable(const StepArguments& a) {
  const auto at = [](const void* p, int bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; };
  const auto rows = [&](const Rows& raw, int elements) {
    return at(raw.data, 2 * elements) && raw.token_stride % elements == 0 && raw.head_stride % elements == 0 &&
           raw.token_stride > 0 && raw.token_stride < 1 << 24;
  };
  return rows(a.q, 8) && rows(a.k, 8) && rows(a.z, 8) && rows(a.v, 2) && rows(a.b, 1) && at(a.window, 16) &&
         at(a.taps, 16) && at(a.dt_bias, 16);
}

}  // namespace

cudaError_t launch_factors(const StepArguments& a, const Slab& slab, cudaStream_t stream) {
  const std::int64_t works = static_cast<std::int64_t>(a.rows) * slab.chunks * a.heads;
  if (!reachable(a) || works > std::numeric_limits<int>::max() / 2) return cudaErrorInvalidValue;
  InputMaps maps;
  const auto map = [&](HeadMap& to, const Rows& raw, int rows) {
    return make_head_map(to, raw.data, 2 * raw.token_stride, 2 * raw.head_stride, a.heads, rows);
  };
  for (const cudaError_t error : {map(maps.q, a.q, kRawRows), map(maps.k, a.k, kRawRows), map(maps.z, a.z, kChunk)})
    if (error != cudaSuccess) return error;
  const int blocks = static_cast<int>(std::min<std::int64_t>(works, kBlocksPerSm * multiprocessors()));
  return launch(factors_kernel, dim3(blocks), kThreads, kSharedBytes, stream, a, slab, maps);
}

}  // namespace k3::cuda::kda::prefill_detail
