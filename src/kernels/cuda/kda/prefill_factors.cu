// The factor kernel of prefill.h: everything of a chunk of 64 tokens that does not depend on the state, from the raw
// projections. One block of
// eight warps per chunk and head; a thread owns two channels of one tile of 16 tokens.
//   1 convolution, SiLU, L2 norms, gate and its running sum G inside the tile
//   2 operands relative to the tile: q e^G, k e^G (<= 1), k e^-G (<= 2^115.4), k e^(G_end - G) (<= 1); Qd and Kb leave
//   for memory
//   3 A and L, tile by tile: rows of tile I meet k e^-G inside the tile and k e^(G_end - G) of earlier tiles, whose
//   decay up to tile I is put on the
//     rows (needed only for tiles that are not neighbours)
//   4 T = (I + L)^-1: 16 x 16 blocks by substitution in fp32, the blocks below them by X_IJ = -X_II sum_K L_IK X_KJ in
//   tf32
//   5 W = T (beta k e^G), U = T (beta v)
// Two blocks share an SM (108 KB of shared memory each, 128 registers a thread).
#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/cuda/kda/prefill_blocks.cuh"

namespace k3::cuda::kda::prefill_detail {
namespace {

constexpr int kThreads = 256, kTile = 16, kTiles = kChunk / kTile, kTaps = 4;
constexpr int kRowPitch = kDim + 8;      // bf16; token-major operands
constexpr int kTokenPitch = kChunk + 8;  // bf16; channel-major operands and T
constexpr int kPairPitch = kChunk + 4;   // fp32; L and X
constexpr float kLog2E = 1.4426950408889634f;

struct Shared {
  union {
    struct {
      __nv_bfloat16 rows_q[kChunk * kRowPitch], rows_k[kChunk * kRowPitch], same_k[kChunk * kRowPitch],
          end_k[kChunk * kRowPitch];
    };
    struct {  // once A and L are in registers
      float lower[kChunk * kPairPitch], inverse[kChunk * kPairPitch], scratch[3][kTile * (kTile + 4)];
      __nv_bfloat16 t[kChunk * kTokenPitch];
    };
  };
  __nv_bfloat16 keys[kDim * kTokenPitch], values[kDim * kTokenPitch];  // beta k e^G and beta v, [channel][token]
  float tile_decay[kTiles][kDim];
  float squares[2][2][kChunk];  // q and k, each from two warps
  float beta[kChunk];
};

__device__ __forceinline__ uint32_t pair_at(const __nv_bfloat16* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ __forceinline__ void put_pair(__nv_bfloat16* p, uint32_t pair) { *reinterpret_cast<uint32_t*>(p) = pair; }
// Channels c, c + 1 (c even) of token `row` in a [64][128] operand of two panels.
__device__ __forceinline__ uint32_t* operand_at(unsigned char* operand, int row, int c) {
  return reinterpret_cast<uint32_t*>(operand + c / 64 * kPanel + panel_offset(row, c % 64 * 2));
}

// Convolution and SiLU of two channels over the 16 tokens of a tile, rounded to bf16; zeros from token `count` of the
// tile on.
struct Place {
  std::int64_t token0;  // of the tile, in the packed tensor
  std::int64_t offset;  // of the tile in its row
  int count;            // tokens of the tile that exist
};
__device__ __forceinline__ void convolve(uint32_t (&out)[kTile], const StepArguments& a, const Rows& raw, int which,
                                         const Place& place, int slot, int head, int channel) {
  const std::int64_t width = static_cast<std::int64_t>(a.heads) * kDim,
                     own = static_cast<std::int64_t>(head) * kDim + channel;
  const auto* column = static_cast<const __nv_bfloat16*>(raw.data) + head * raw.head_stride + channel;
  const auto* window =
      static_cast<const __nv_bfloat16*>(a.window) + static_cast<std::int64_t>(slot) * 9 * width + which * width + own;
  const float4 first = load4(a.taps + (which * width + own) * kTaps),
               second = load4(a.taps + (which * width + own + 1) * kTaps);
  uint32_t x[kTile + 3];
#pragma unroll
  for (int i = 0; i < kTile + 3; ++i) {
    const std::int64_t position = place.offset + i - 3;
    x[i] = 0;
    if (place.count > 0 && i - 3 < place.count) {
      if (position >= 0) x[i] = pair_at(column + (place.token0 + i - 3) * raw.token_stride);
      else x[i] = pair_at(window + (position + 3) * 3 * width);
    }
  }
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float2 x0 = both(x[i]), x1 = both(x[i + 1]), x2 = both(x[i + 2]), x3 = both(x[i + 3]);
    const float left = first.x * x0.x + first.y * x1.x + first.z * x2.x + first.w * x3.x;
    const float right = second.x * x0.y + second.y * x1.y + second.z * x2.y + second.w * x3.y;
    out[i] = i < place.count ? bf16_pair(left * fast_sigmoid(left), right * fast_sigmoid(right)) : 0u;
  }
}
// Sums of squares of the 16 tokens over this warp's 64 channels: lane l (and l + 16) ends with token l % 16.
template <int kWidth = 8>
__device__ __forceinline__ float fold_tokens(float (&x)[kTile]) {
  const bool upper = threadIdx.x & kWidth;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float kept = upper ? x[i + kWidth] : x[i], sent = upper ? x[i] : x[i + kWidth];
    x[i] = kept + shuffle_xor(sent, kWidth);
  }
  if constexpr (kWidth > 1) return fold_tokens<kWidth / 2>(x);
  return x[0] + shuffle_xor(x[0], 16);
}
__device__ __forceinline__ float squares_of(const uint32_t (&x)[kTile]) {
  float sums[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float2 pair = both(x[i]);
    sums[i] = pair.x * pair.x + pair.y * pair.y;
  }
  return fold_tokens(sums);
}
// 16 tokens of one channel, packed in pairs, to a channel-major operand.
__device__ __forceinline__ void put_column(__nv_bfloat16* column, const uint32_t (&pairs)[kTile / 2]) {
  reinterpret_cast<uint4*>(column)[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  reinterpret_cast<uint4*>(column)[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
}

// X_IJ for the blocks at distance kDistance below the diagonal; one warp a block.
template <int kDistance>
__device__ __forceinline__ void merge_blocks(Shared& s, int warp) {
  if (warp >= kTiles - kDistance) return;
  const int left_block = warp, row_block = warp + kDistance;  // J and I
  float* scratch = s.scratch[warp];
  using Product = WarpTile<1, 2>;
  Product sum;
  sum.clear();
#pragma unroll
  for (int middle = 0; middle < kDistance; ++middle) {
    const float* l = s.lower + row_block * kTile * kPairPitch + (left_block + middle) * kTile;
    const float* x = s.inverse + (left_block + middle) * kTile * kPairPitch + left_block * kTile;
    multiply<kTile, false>(
        sum, [&](int i, int k) { return l[i * kPairPitch + k]; }, [&](int k, int j) { return x[k * kPairPitch + j]; });
  }
  sum.each_pair([&](int i, int j, float x, float y) {
    *reinterpret_cast<float2*>(scratch + i * (kTile + 4) + j) = make_float2(x, y);
  });
  __syncwarp();
  Product result;
  result.clear();
  const float* diagonal = s.inverse + row_block * kTile * (kPairPitch + 1);
  multiply<kTile, false>(
      result, [&](int i, int k) { return -diagonal[i * kPairPitch + k]; },
      [&](int k, int j) { return scratch[k * (kTile + 4) + j]; });
  float* out = s.inverse + row_block * kTile * kPairPitch + left_block * kTile;
  result.each_pair([&](int i, int j, float x, float y) {
    *reinterpret_cast<float2*>(out + i * kPairPitch + j) = make_float2(x, y);
  });
}

__global__ void __launch_bounds__(kThreads, 2)
    factors_kernel(const __grid_constant__ StepArguments a, const __grid_constant__ Slab slab) {
  Shared& s = *shared_memory<Shared>();
  const int head = blockIdx.x, chunk = blockIdx.y, row = blockIdx.z, thread = threadIdx.x, warp = thread / 32,
            lane = thread % 32;
  const int slot = a.slots[row];
  const std::int64_t row_first = a.starts[row], row_tokens = a.starts[row + 1] - row_first;
  const std::int64_t chunk_offset = static_cast<std::int64_t>(slab.first_chunk + chunk) * kChunk;
  if (slot < 0 || chunk_offset >= row_tokens) return;
  unsigned char* block = block_of(slab, row, chunk, a.heads, head);
  const int chunk_tokens = static_cast<int>(min(static_cast<std::int64_t>(kChunk), row_tokens - chunk_offset));
  if (thread < kChunk)
    s.beta[thread] =
        thread < chunk_tokens
            ? fast_sigmoid(load1(static_cast<const __nv_bfloat16*>(a.b.data) +
                                 (row_first + chunk_offset + thread) * a.b.token_stride + head * a.b.head_stride))
            : 0.f;
  __syncthreads();

  // ---- 1: this thread's two channels and tile
  const int tile = thread / 64, channel = thread % 64 * 2, row0 = tile * kTile;
  const Place place{row_first + chunk_offset + row0, chunk_offset + row0, max(0, min(kTile, chunk_tokens - row0))};
  {
    uint32_t v[kTile], first[kTile / 2], second[kTile / 2];
    convolve(v, a, a.v, 2, place, slot, head, channel);
#pragma unroll
    for (int i = 0; i < kTile; i += 2) {
      const float2 x = both(v[i]), y = both(v[i + 1]);
      const float beta0 = s.beta[row0 + i], beta1 = s.beta[row0 + i + 1];
      first[i / 2] = bf16_pair(beta0 * x.x, beta1 * y.x), second[i / 2] = bf16_pair(beta0 * x.y, beta1 * y.y);
    }
    put_column(s.values + channel * kTokenPitch + row0, first);
    put_column(s.values + (channel + 1) * kTokenPitch + row0, second);
  }
  uint32_t q[kTile], k[kTile];
  convolve(q, a, a.q, 0, place, slot, head, channel);
  const float q_squares = squares_of(q);
  convolve(k, a, a.k, 1, place, slot, head, channel);
  const float k_squares = squares_of(k);
  if (lane < kTile) s.squares[0][warp % 2][row0 + lane] = q_squares, s.squares[1][warp % 2][row0 + lane] = k_squares;
  float2 decay[kTile];  // running sum of g inside the tile, in units of log 2
  {
    const auto* logits = static_cast<const __nv_bfloat16*>(a.z.data) + head * a.z.head_stride + channel;
    const float2 bias = *reinterpret_cast<const float2*>(a.dt_bias + head * kDim + channel);
    const float speed = fast_exp(a.a_log[head]), bound = a.lower_bound * kLog2E;
    float2 sum = make_float2(0.f, 0.f);
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      if (i < place.count) {
        const float2 z = both(pair_at(logits + (place.token0 + i) * a.z.token_stride));
        sum.x += bound * fast_sigmoid(speed * (z.x + bias.x)), sum.y += bound * fast_sigmoid(speed * (z.y + bias.y));
      }
      decay[i] = sum;
    }
    const float2 total = make_float2(fast_exp2(sum.x), fast_exp2(sum.y));
    *reinterpret_cast<float2*>(&s.tile_decay[tile][channel]) = total;
  }
  __syncthreads();

  // ---- 2: operands
  {
    float2 before = make_float2(1.f, 1.f), after = before,
           own = before;  // decays of the tiles before, behind, and of this one
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const float2 d = *reinterpret_cast<float2*>(&s.tile_decay[t][channel]);
      if (t < tile) before.x *= d.x, before.y *= d.y;
      if (t == tile) own = d;
      if (t > tile) after.x *= d.x, after.y *= d.y;
    }
    if (tile == 0)
      *reinterpret_cast<float2*>(block + kDecay + channel * 4) = make_float2(own.x * after.x, own.y * after.y);
    const float scale = inverse_sqrt(static_cast<float>(kDim));
    uint32_t first[kTile / 2], second[kTile / 2];
    float2 previous;
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const int at = row0 + i;
      const float q_length = scale * inverse_sqrt(s.squares[0][0][at] + s.squares[0][1][at] + 1e-6f);
      const float k_length = inverse_sqrt(s.squares[1][0][at] + s.squares[1][1][at] + 1e-6f);
      const float2 down = make_float2(fast_exp2(decay[i].x), fast_exp2(decay[i].y)),
                   up = make_float2(fast_exp2(-decay[i].x), fast_exp2(-decay[i].y));
      float2 qx = both(q[i]), kx = both(k[i]);
      qx.x *= q_length * down.x, qx.y *= q_length * down.y;
      kx.x *= k_length, kx.y *= k_length;
      const float2 k_up = make_float2(kx.x * up.x, kx.y * up.y), k_down = make_float2(kx.x * down.x, kx.y * down.y);
      const float2 k_end = make_float2(k_up.x * own.x, k_up.y * own.y);
      put_pair(s.rows_q + at * kRowPitch + channel, bf16_pair(qx.x, qx.y));
      put_pair(s.rows_k + at * kRowPitch + channel, bf16_pair(k_down.x, k_down.y));
      put_pair(s.same_k + at * kRowPitch + channel, bf16_pair(k_up.x, k_up.y));
      put_pair(s.end_k + at * kRowPitch + channel, bf16_pair(k_end.x, k_end.y));
      *operand_at(block + kDecayedQueries, at, channel) = bf16_pair(qx.x * before.x, qx.y * before.y);
      *operand_at(block + kRestoredKeys, at, channel) = bf16_pair(k_end.x * after.x, k_end.y * after.y);
      const float beta = s.beta[at];
      const float2 weighted = make_float2(beta * k_down.x * before.x, beta * k_down.y * before.y);
      if (i % 2) first[i / 2] = bf16_pair(previous.x, weighted.x), second[i / 2] = bf16_pair(previous.y, weighted.y);
      previous = weighted;
    }
    put_column(s.keys + channel * kTokenPitch + row0, first);
    put_column(s.keys + (channel + 1) * kTokenPitch + row0, second);
  }
  __syncthreads();

  // ---- 3: warps 0-3 A, warps 4-7 L, each one tile of rows against all earlier tiles and its own
  const int row_tile = warp % 4;
  const __nv_bfloat16* rows = (warp < 4 ? s.rows_q : s.rows_k) + row_tile * kTile * kRowPitch;
  using Pairs = WarpTile<1, 2>;
  Pairs pairs[kTiles];
#pragma unroll
  for (int other = 0; other < kTiles; ++other) {
    pairs[other].clear();
    if (other > row_tile) continue;
    const __nv_bfloat16* columns = (other == row_tile ? s.same_k : s.end_k) + other * kTile * kRowPitch;
    const auto column = [&](int j, int c) { return pair_at(columns + j * kRowPitch + c); };
    if (row_tile - other < 2) {
      multiply_bf16<kDim>(pairs[other], [&](int i, int c) { return pair_at(rows + i * kRowPitch + c); }, column);
    } else {
      multiply_bf16<kDim>(
          pairs[other],
          [&](int i, int c) {
            float2 x = both(pair_at(rows + i * kRowPitch + c));
            for (int t = other + 1; t < row_tile; ++t) {
              const float2 d = *reinterpret_cast<const float2*>(&s.tile_decay[t][c]);
              x.x *= d.x, x.y *= d.y;
            }
            return bf16_pair(x.x, x.y);
          },
          column);
    }
  }
  __syncthreads();  // the operands are dead: L, X and T take their place
#pragma unroll
  for (int other = 0; other < kTiles; ++other)
    pairs[other].each_pair([&](int i, int j, float x, float y) {
      const int at = row_tile * kTile + i, column = other * kTile + j;
      if (warp < 4) {
        *reinterpret_cast<uint32_t*>(block + kScores + panel_offset(at, column * 2)) =
            bf16_pair(column <= at ? x : 0.f, column + 1 <= at ? y : 0.f);
      } else {
        const float beta = s.beta[at];
        *reinterpret_cast<float2*>(s.lower + at * kPairPitch + column) =
            make_float2(column < at ? beta * x : 0.f, column + 1 < at ? beta * y : 0.f);
      }
    });
  for (int i = thread; i < kChunk * kPairPitch; i += kThreads) s.inverse[i] = 0.f;
  __syncthreads();

  // ---- 4: the inverse
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
      if (lane < kTile) s.inverse[(warp * kTile + i) * kPairPitch + warp * kTile + column] = x[i];
    }
  }
  __syncthreads();
  merge_blocks<1>(s, warp);
  __syncthreads();
  merge_blocks<2>(s, warp);
  __syncthreads();
  merge_blocks<3>(s, warp);
  __syncthreads();
  for (int i = thread; i < kChunk * kChunk / 2; i += kThreads) {
    const int at = i / (kChunk / 2), column = i % (kChunk / 2) * 2;
    const float2 x = *reinterpret_cast<float2*>(s.inverse + at * kPairPitch + column);
    put_pair(s.t + at * kTokenPitch + column, bf16_pair(x.x, x.y));
  }
  __syncthreads();

  // ---- 5: a warp owns 16 channels of W and U
  const auto product = [&](const __nv_bfloat16* right, unsigned char* operand) {
    WarpTile<4, 2> sum;
    sum.clear();
    multiply_bf16<kChunk>(
        sum, [&](int i, int j) { return pair_at(s.t + i * kTokenPitch + j); },
        [&](int c, int j) { return pair_at(right + (16 * warp + c) * kTokenPitch + j); });
    sum.each_pair([&](int i, int c, float x, float y) { *operand_at(operand, i, 16 * warp + c) = bf16_pair(x, y); });
  };
  product(s.keys, block + kWeightedKeys);
  product(s.values, block + kWeightedValues);
}

}  // namespace

cudaError_t launch_factors(const StepArguments& a, const Slab& slab, cudaStream_t stream) {
  return launch(factors_kernel, dim3(a.heads, slab.chunks, a.rows), kThreads, sizeof(Shared), stream, a, slab);
}

}  // namespace k3::cuda::kda::prefill_detail
