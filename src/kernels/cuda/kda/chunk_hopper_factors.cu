// Everything of a chunk of 64 tokens that does not depend on the state (chunk_hopper.cuh). One block of kDim / 16 warps
// per chunk and head; a thread owns two channels of one tile of 16 tokens.
//   1 g, its running sum G inside the tile, raw q, k; beta v
//   2 pairs inside a tile: q e^G and k e^G against k e^-G in tf32 (up to 2^115, which fp16 cannot hold; tiles that
//     decay further, where fp32 cannot either, sum their pairs one by one, differences before exp)
//   3 operands relative to the tile: q e^G, k e^G, k e^(G_end - G), all <= 1; Qd and Kb leave for memory
//   4 pairs of different tiles in fp16; the decay of tiles in between is put on the rows
//   5 T = (I + L)^-1: 16 x 16 blocks by substitution in fp32, then -T_lower L T_upper twice, tf32 with both halves of
//     each operand
//   6 W = T (beta k e^G), U = T (beta v)
// Two blocks share an SM (128 registers a thread).
#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/cuda/kda/chunk_hopper.cuh"
#include "kernels/cuda/kda/chunk_tiles.cuh"

namespace k3::cuda::kda::hopper {
namespace {

constexpr int kPairPitch = kTokens + 4;  // fp32 [64][64] matrices

template <int kDim>
struct Shared {
  static constexpr int kOperand = Record<kDim>::kOperand, kDecayPitch = kDim + 8, kRawPitch = kDim + 8;
  union {
    struct {
      float decay[kTokens * kDecayPitch];  // G inside the tile, units of log 2
      __nv_bfloat16 q[kTokens * kRawPitch], k[kTokens * kRawPitch];
    };
    struct {
      unsigned char rows_q[kOperand], rows_k[kOperand], end_k[kOperand];
    };
    struct {
      float square[kTokens * kPairPitch];  // A, then T
      float lower[kTokens * kPairPitch], scratch[4][kTile * (kTile + 4)];
    };
    unsigned char result[2 * kOperand];  // U, W
  };
  alignas(1024) unsigned char keys[kOperand];    // beta k e^G
  alignas(1024) unsigned char values[kOperand];  // beta v
  alignas(1024) unsigned char t[kPanelBytes];
  float tile_decay[kTiles][kDim];
  uint32_t between[3][kDim / 2];  // decays of tile 1, of tile 2, of both: fp16 pairs
  float beta[kTokens];
  int deep[kTiles];
};

static_assert(sizeof(Shared<128>) <= 113 * 1024, "two blocks of an SM");

__device__ __forceinline__ uint32_t pair_at(const __nv_bfloat16* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ __forceinline__ void put_pair(unsigned char* p, uint32_t pair) { *reinterpret_cast<uint32_t*>(p) = pair; }

// Pairs of one tile over 64 channels: first row tile of `sum` q, second k.
template <int kDim>
__device__ __forceinline__ void diagonal_pairs(Shared<kDim>& s, WarpTile<2, 2>& sum, int tile, int channel0) {
  constexpr int kDecayPitch = Shared<kDim>::kDecayPitch, kRawPitch = Shared<kDim>::kRawPitch;
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4, row0 = tile * kTile;
  sum.clear();
  if (s.deep[tile]) {
    for (int c = channel0; c < channel0 + 64; ++c) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = row0 + group + 8 * (e / 2), column = row0 + 8 * n + 2 * quad + e % 2;
          const float decayed = load1(&s.k[column * kRawPitch + c]) *
                                fast_exp2(min(0.f, s.decay[row * kDecayPitch + c] - s.decay[column * kDecayPitch + c]));
          sum.value[0][n][e] += load1(&s.q[row * kRawPitch + c]) * decayed;
          sum.value[1][n][e] += load1(&s.k[row * kRawPitch + c]) * decayed;
        }
    }
    return;
  }
  // The order of the channels in a product is free: slots quad and quad + 4 hold neighbours, which one load brings.
#pragma unroll
  for (int step = 0; step < 64; step += 8) {
    uint32_t q[4], k[4], other[2][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + group + 8 * half, channel = channel0 + step + 2 * quad;
      const float2 decay = *reinterpret_cast<const float2*>(s.decay + row * kDecayPitch + channel),
                   query = both(pair_at(s.q + row * kRawPitch + channel)),
                   key = both(pair_at(s.k + row * kRawPitch + channel));
      const float2 down = make_float2(fast_exp2(decay.x), fast_exp2(decay.y));
      q[half] = round_tf32(query.x * down.x), q[half + 2] = round_tf32(query.y * down.y);
      k[half] = round_tf32(key.x * down.x), k[half + 2] = round_tf32(key.y * down.y);
      other[half][0] = round_tf32(key.x * fast_exp2(-decay.x));
      other[half][1] = round_tf32(key.y * fast_exp2(-decay.y));
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      tensor_core_tf32(sum.value[0][n], q, other[n]);
      tensor_core_tf32(sum.value[1][n], k, other[n]);
    }
  }
}

// sum += a b over kDepth, 16 x 16 entries, both halves of each operand: the tensor core reads the upper 19 bits of
// a number, so cutting there gives the first half and the difference the second.
template <int kDepth, class A, class B>
__device__ __forceinline__ void multiply_split(WarpTile<1, 2>& sum, A a, B b) {
  const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  const auto upper = [](float x) { return bits_of(x) & 0xffffe000u; };
  const auto lower = [](float x, uint32_t upper_bits) { return bits_of(x - from_bits(upper_bits)); };
#pragma unroll
  for (int k = 0; k < kDepth; k += 8) {
    uint32_t left[4], left_rest[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float x = a(group + 8 * (e % 2), k + quad + 4 * (e / 2));
      left[e] = upper(x), left_rest[e] = lower(x, left[e]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      uint32_t right[2], right_rest[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float x = b(k + quad + 4 * e, 8 * n + group);
        right[e] = upper(x), right_rest[e] = lower(x, right[e]);
      }
      tensor_core_tf32(sum.value[0][n], left_rest, right);
      tensor_core_tf32(sum.value[0][n], left, right_rest);
      tensor_core_tf32(sum.value[0][n], left, right);
    }
  }
}

// Blocks (I, J) of T below the diagonal, 16 x 16, T holding its diagonal ones: first (1, 0) and (3, 2), each by one
// warp, then the lower left quarter -T_lower L T_upper by four.
template <int kDim>
__device__ __forceinline__ void merge_blocks(Shared<kDim>& s, int warp) {
  constexpr int kPitch = kTile + 4;
  const auto block = [](float* square, int i, int j) { return square + i * kTile * kPairPitch + j * kTile; };
  const auto entries = [](const float* first) { return [=](int i, int k) { return first[i * kPairPitch + k]; }; };
  const auto negative = [](const float* first) { return [=](int i, int k) { return -first[i * kPairPitch + k]; }; };
  const auto scratch = [&](int w) { return [first = s.scratch[w]](int k, int j) { return first[k * kPitch + j]; }; };
  const auto put = [](WarpTile<1, 2>& sum, float* first, int pitch) {
    sum.each_pair([&](int i, int j, float x, float y) {
      *reinterpret_cast<float2*>(first + i * pitch + j) = make_float2(x, y);
    });
  };
  WarpTile<1, 2> sum;
  sum.clear();
  if (warp < 2) {
    const int j = 2 * warp, i = j + 1;
    multiply_split<kTile>(sum, entries(block(s.lower, i, j)), entries(block(s.square, j, j)));
    put(sum, s.scratch[warp], kPitch);
    __syncwarp();
    sum.clear();
    multiply_split<kTile>(sum, negative(block(s.square, i, i)), scratch(warp));
    put(sum, block(s.square, i, j), kPairPitch);
  }
  __syncthreads();
  const int i = 2 + warp / 2, j = warp % 2;
  sum.clear();
  if (warp < 4) {
    multiply_split<kTile>(sum, entries(block(s.lower, i, 1)), entries(block(s.square, 1, j)));
    if (j == 0) multiply_split<kTile>(sum, entries(block(s.lower, i, 0)), entries(block(s.square, 0, 0)));
    put(sum, s.scratch[warp], kPitch);
  }
  __syncthreads();
  sum.clear();
  if (warp < 4) {
    multiply_split<kTile>(sum, negative(block(s.square, i, 2)), scratch(j));
    if (i == 3) multiply_split<kTile>(sum, negative(block(s.square, 3, 3)), scratch(2 + j));
    put(sum, block(s.square, i, j), kPairPitch);
  }
}

template <int kDim>
__global__ void __launch_bounds__(2 * kDim, 256 / kDim)
    factors_kernel(const __grid_constant__ ForwardInputs in, const __grid_constant__ Workspace w) {
#if defined(K3_CUDA_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kThreads = 2 * kDim, kWarps = kThreads / 32, kPairs = kDim / 2;
  constexpr int kDecayPitch = Shared<kDim>::kDecayPitch, kRawPitch = Shared<kDim>::kRawPitch;
  using Block = Record<kDim>;
  Shared<kDim>& s = *shared_memory<Shared<kDim>>();
  const int heads = in.shape.heads, head = blockIdx.x % heads, chunk = blockIdx.x / heads;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const ChunkPlace place = w.places[chunk];
  if (place.rows == 0) return;
  const std::int64_t at_tile = blockIdx.x;
  unsigned char* record = w.records + at_tile * Block::kStride;

  // ---- 1
  if (thread < kTokens)
    s.beta[thread] = thread < place.rows ? *row_pointer<float>(in.beta, place.first_token + thread, head) : 0.f;
  if (thread < kTiles) s.deep[thread] = 0;
  __syncthreads();
  const int tile = thread / kPairs, channel = thread % kPairs * 2, row0 = tile * kTile;
  uint32_t q[kTile], k[kTile];
  float2 decay[kTile];
  {
    const float factor = value_factor(w.largest_v[place.sequence * heads + head]);
    uint32_t v[kTile];
    float2 g[kTile];
    Column<const __nv_bfloat16> from_q(in.q, place.first_token + row0, head, channel),
        from_k(in.k, place.first_token + row0, head, channel), from_v(in.v, place.first_token + row0, head, channel);
    Column<const float> from_g(in.g, place.first_token + row0, head, channel);
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const bool inside = row0 + i < place.rows;
      const auto *at_q = from_q.next(), *at_k = from_k.next(), *at_v = from_v.next();
      const float* at_g = from_g.next();
      q[i] = inside ? pair_at(at_q) : 0u;
      k[i] = inside ? pair_at(at_k) : 0u;
      v[i] = inside ? pair_at(at_v) : 0u;
      g[i] = inside ? *reinterpret_cast<const float2*>(at_g) : make_float2(0.f, 0.f);
    }
    float2 sum = make_float2(0.f, 0.f);
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const int row = row0 + i;
      const float weight = s.beta[row] * factor;
      const float2 value = both(v[i]);
      put_pair(s.values + panel_place(row, channel), half_pair(value.x * weight, value.y * weight));
      sum.x += g[i].x * kLog2E, sum.y += g[i].y * kLog2E;
      decay[i] = sum;
      *reinterpret_cast<float2*>(s.decay + row * kDecayPitch + channel) = sum;
      *reinterpret_cast<uint32_t*>(s.q + row * kRawPitch + channel) = q[i];
      *reinterpret_cast<uint32_t*>(s.k + row * kRawPitch + channel) = k[i];
    }
    *reinterpret_cast<float2*>(&s.tile_decay[tile][channel]) = make_float2(fast_exp2(sum.x), fast_exp2(sum.y));
    if (min(sum.x, sum.y) < -kDeep) s.deep[tile] = 1;
  }
  __syncthreads();

  // ---- 2: one tile and 64 channels a warp
  WarpTile<2, 2> diagonal;
  diagonal_pairs<kDim>(s, diagonal, warp % kTiles, warp / kTiles * 64);

  // ---- 3
  {
    __syncthreads();
    float2 before = make_float2(1.f, 1.f), after = before;  // decays of the tiles before and behind
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const float2 d = *reinterpret_cast<float2*>(&s.tile_decay[t][channel]);
      if (t < tile) before.x *= d.x, before.y *= d.y;
      if (t > tile) after.x *= d.x, after.y *= d.y;
    }
    if (tile == 0) {
      const float2 one = *reinterpret_cast<float2*>(&s.tile_decay[1][channel]),
                   two = *reinterpret_cast<float2*>(&s.tile_decay[2][channel]);
      s.between[0][channel / 2] = half_pair(one.x, one.y), s.between[1][channel / 2] = half_pair(two.x, two.y);
      s.between[2][channel / 2] = half_pair(one.x * two.x, one.y * two.y);
    }
    const float2 end = decay[kTile - 1];
    if (tile == 0)
      *reinterpret_cast<float2*>(record + Block::kDecay + channel * 4) =
          make_float2(fast_exp2(end.x) * after.x, fast_exp2(end.y) * after.y);
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const int row = row0 + i, at = panel_place(row, channel);
      const float2 down = make_float2(fast_exp2(decay[i].x), fast_exp2(decay[i].y)),
                   rest = make_float2(fast_exp2(end.x - decay[i].x), fast_exp2(end.y - decay[i].y));
      float2 x = both(q[i]), y = both(k[i]);
      const float2 y_end = make_float2(y.x * rest.x, y.y * rest.y);
      x.x *= down.x, x.y *= down.y, y.x *= down.x, y.y *= down.y;
      put_pair(s.rows_q + at, half_pair(x.x, x.y));
      put_pair(s.rows_k + at, half_pair(y.x, y.y));
      put_pair(s.end_k + at, half_pair(y_end.x, y_end.y));
      put_pair(record + Block::kDecayedQueries + at, half_pair(x.x * before.x, x.y * before.y));
      put_pair(record + Block::kRestoredKeys + at, half_pair(y_end.x * after.x, y_end.y * after.y));
      const float beta = s.beta[row];
      put_pair(s.keys + at, half_pair(beta * y.x * before.x, beta * y.y * before.y));
    }
  }
  __syncthreads();

  // ---- 4: six tiles below the diagonal, one a warp
  constexpr int kTasks = 6, kTurns = (kTasks + kWarps - 1) / kWarps;
  float pairs[kTurns][2][2][4];  // of q and of k
  const auto task_rows = [](int task) { return task < 3 ? task + 1 : task < 5 ? task - 1 : 3; };
  const auto task_columns = [](int task) { return task < 3 ? task : task < 5 ? task - 3 : 0; };
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int task = kTasks - 1 - turn * kWarps - warp;
    if (task < 0) break;
    const int rows = task_rows(task), columns = task_columns(task);
#pragma unroll
    for (int i = 0; i < 16; ++i) pairs[turn][i / 8][i / 4 % 2][i % 4] = 0.f;
#pragma unroll
    for (int k = 0; k < kDim; k += 16) {
      uint32_t a[2][4], b[4];
      load_matrices(a[0], near(shared_address(s.rows_q), rows * kTile, k));
      load_matrices(a[1], near(shared_address(s.rows_k), rows * kTile, k));
      load_matrices(b, far(shared_address(s.end_k), columns * kTile, k));
      if (rows - columns > 1) {
        const uint32_t* decay = s.between[rows - columns > 2 ? 2 : columns] + k / 2 + lane % 4;
        const uint32_t low = decay[0], high = decay[4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          a[m][0] = multiply_halves(a[m][0], low), a[m][1] = multiply_halves(a[m][1], low);
          a[m][2] = multiply_halves(a[m][2], high), a[m][3] = multiply_halves(a[m][3], high);
        }
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        tensor_core_half(pairs[turn][m][0], a[m], b[0], b[1]);
        tensor_core_half(pairs[turn][m][1], a[m], b[2], b[3]);
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int task = kTasks - 1 - turn * kWarps - warp;
    if (task < 0) break;
    const int rows = task_rows(task) * kTile, columns = task_columns(task) * kTile;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = rows + 8 * half + lane / 4, at = row * kPairPitch + columns + 8 * n + 2 * (lane % 4);
        const float beta = s.beta[row];
        *reinterpret_cast<float2*>(s.square + at) =
            make_float2(pairs[turn][0][n][2 * half], pairs[turn][0][n][2 * half + 1]);
        *reinterpret_cast<float2*>(s.lower + at) =
            make_float2(beta * pairs[turn][1][n][2 * half], beta * pairs[turn][1][n][2 * half + 1]);
      }
  }
#pragma unroll
  for (int part = 0; part < kDim / 64; ++part) {
    if (warp / kTiles == part) {
      const int first = warp % kTiles * kTile;
      diagonal.each_pair([&](int i, int j, float x, float y) {
        const int row = first + i % kTile, column = first + j;
        const float weight = i < kTile ? 1.f : s.beta[row];
        float* out = (i < kTile ? s.square : s.lower) + row * kPairPitch + column;
        const int last = i < kTile ? row : row - 1;  // select: pairs above the diagonal may not be finite
        x = column <= last ? weight * x : 0.f, y = column + 1 <= last ? weight * y : 0.f;
        if (part > 0) x += out[0], y += out[1];
        *reinterpret_cast<float2*>(out) = make_float2(x, y);
      });
    }
    __syncthreads();
  }

  // ---- 5
  const auto put_square = [&](const float* from, unsigned char* to, int first, int threads) {
    for (int i = first; i < kTokens * 8; i += threads) {
      const int row = i / 8, column = i % 8 * 8;
      uint32_t pairs[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float x = column + 2 * j <= row ? from[row * kPairPitch + column + 2 * j] : 0.f;
        const float y = column + 2 * j + 1 <= row ? from[row * kPairPitch + column + 2 * j + 1] : 0.f;
        pairs[j] = half_pair(x, y);
      }
      *reinterpret_cast<uint4*>(to + panel_place(row, column)) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  };
  put_square(s.square, record + Block::kScores, thread, kThreads);
  __syncthreads();
  if (warp < kTiles) {  // lane = column of the diagonal block; lanes 16-31 repeat
    const int column = lane % kTile;
    const float* l = s.lower + warp * kTile * (kPairPitch + 1);
    float x[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      float even = i == column ? 1.f : 0.f, odd = 0.f;
#pragma unroll
      for (int j = 0; j < i; ++j) {
        if (j % 2) odd -= l[i * kPairPitch + j] * x[j];
        else even -= l[i * kPairPitch + j] * x[j];
      }
      x[i] = even + odd;
      if (lane < kTile) s.square[(warp * kTile + i) * kPairPitch + warp * kTile + column] = x[i];
    }
  }
  __syncthreads();
  merge_blocks(s, warp);
  __syncthreads();
  put_square(s.square, s.t, thread, kThreads);
  async_proxy_fence();
  __syncthreads();
  if (w.inverse && thread == 0) bulk_copy_out(w.inverse + at_tile * kPanelBytes, shared_address(s.t), kPanelBytes);

  // ---- 6: a warpgroup's U, then, or another one's, W
  constexpr int kGroups = kWarps / 4;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    if (which % kGroups != warp / 4) continue;
    const uint32_t t = shared_address(s.t), right = shared_address(which == 0 ? s.values : s.keys);
    float sum[kDim / 2];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint64_t columns = panel_descriptor(right + k * 2048, kPanelBytes);
      if (k == 0) wgmma_half_rows<0, 1, 1>(sum, panel_descriptor(t), columns);
      else wgmma_half_rows<1, 1, 1>(sum, panel_descriptor(t + k * 32), columns);
    }
    wgmma_commit();
    wgmma_wait<0>();
    settle(sum);
    const uint32_t out = shared_address(s.result) + (which == 0 ? Block::kWeightedValues : Block::kWeightedKeys);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n)
      store_matrices(near(out, warp % 4 * kTile, 16 * n), half_pair(sum[8 * n], sum[8 * n + 1]),
                     half_pair(sum[8 * n + 2], sum[8 * n + 3]), half_pair(sum[8 * n + 4], sum[8 * n + 5]),
                     half_pair(sum[8 * n + 6], sum[8 * n + 7]));
  }
  async_proxy_fence();
  __syncthreads();
  if (thread == 0) {
    bulk_copy_out(record, shared_address(s.result), 2 * Block::kOperand);
    bulk_commit();
    bulk_wait_read<0>();
  }
#endif  // elsewhere chunk_path() is plain and nobody launches it
}

}  // namespace

cudaError_t launch_factors(const ForwardInputs& in, const Workspace& workspace, cudaStream_t stream) {
  if (in.shape.tokens == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(most_chunks(in.shape) * in.shape.heads));
  const auto run = [&](auto kernel, int threads, std::size_t bytes) {
    return launch(kernel, grid, threads, bytes, stream, in, workspace);
  };
  return in.shape.dim == 64 ? run(factors_kernel<64>, 128, sizeof(Shared<64>))
                            : run(factors_kernel<128>, 256, sizeof(Shared<128>));
}

}  // namespace k3::cuda::kda::hopper
