// Step 5 of kda.h: all gradients of one chunk and head, once S (state at its start), dS (gradient of the state at its
// end), R and dR are known. One block of eight warps per chunk and head.
//   X = T^T dR                                     gradient of beta (v - (k e^G)^T S)
//   dA = strict lower(dO R^T), dL = -strict lower(X R^T)            (dL: of the entry without its beta)
//   from the state:  Q1 = dO S^T,  Y = -X S^T,  K1 = R dS^T         [kChunk, dim]
//   dq_i = scale (e^(G_i) Q1_i + sum_j dA_ij k_j e^(G_i - G_j) + dA_ii k_i)
//   r_i  = e^(G_i) Y_i + sum_j dL_ij k_j e^(G_i - G_j)
//   c_j  = sum_i (scale dA_ij q_i + beta_i dL_ij k_i) e^(G_i - G_j)
//   k1_i = e^(G_C - G_i) K1_i
//   dk = beta r + c + k1 (+ scale dA_ii q_i);   dv = beta X;   dbeta = X . v + r . k
//   dG = q dq + k (beta r - c - k1), on the last row also + sum_i k_i k1_i + e^(G_C) rowsum(S dS);   dg = reverse
//   running sum of dG
// The terms with i = j have decay 1 and cancel in dG, so they are added after it. Products with S and dS run over
// blocks of 32 value columns, keys in passes of at most 64, so that 76 KB of shared memory suffice at every dim.
#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/cuda/kda/chunk_tiles.cuh"

namespace k3::cuda::kda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kBlock = kValueBlock;
constexpr int kPitch = kBlock + 4;  // tiles of 32 columns, read along the contraction index
static_assert(kChunk == 32 && kBlock == 32, "the warps' shares below assume 32 x 32 tiles");

template <int kDim>
struct Shared {
  static constexpr int kKeys = kDim < 64 ? kDim : 64;  // of one pass
  static constexpr int kKeyPitch = kKeys + 4;
  float q[kChunk * kKeyPitch], k[kChunk * kKeyPitch], decay[kChunk * kKeyPitch];
  float inverse[kChunk * kPitch];
  float2 d_pairs[kChunk * (kChunk + 1)];  // (dA, dL)
  float state_product[kKeys];             // rowsum(S dS)
  float beta[kChunk];
  union {
    struct {
      float state[kKeys * kPitch], d_state[kKeys * kPitch];
      float d_output_and_x[2 * kChunk * kPitch];  // dO above X: one product serves dA and dL
      float residuals[kChunk * kPitch], d_residuals[kChunk * kPitch];
    } sweep;
    struct {
      float q1[kChunk * kKeyPitch], y[kChunk * kKeyPitch], k1[kChunk * kKeyPitch];
    } keys;
  };
};

// Sum over groups of kLanes neighbouring lanes.
template <int kLanes>
__device__ __forceinline__ float sum_neighbours(float x) {
#pragma unroll
  for (int step = kLanes / 2; step >= 1; step /= 2) x += shuffle_xor(x, step);
  return x;
}

template <int kDim, class E>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(BackwardArguments a, ChunkWorkspace w, BackwardWorkspace gradients) {
  constexpr bool kExact = std::is_same_v<E, float>;
  constexpr int kKeys = Shared<kDim>::kKeys, kKeyPitch = Shared<kDim>::kKeyPitch;
  Shared<kDim>& s = *shared_memory<Shared<kDim>>();
  const ForwardInputs& in = a.inputs;
  const int chunk = blockIdx.x, head = blockIdx.y, thread = threadIdx.x, warp = thread / 32;
  ChunkPlace place;
  if (!find_chunk(chunk, w.chunk_starts, in.starts, in.shape.sequences, place)) return;
  const std::int64_t tile = static_cast<std::int64_t>(chunk) * in.shape.heads + head;
  const std::int64_t rows_at = tile * kChunk * kDim, states_at = tile * kDim * kDim;
  const float scale = in.scale;

  copy_tile<kChunk, kChunk, kPitch, kThreads>(s.inverse, w.inverse + tile * kChunk * kChunk, kChunk);
  copy_async_commit();
  if (thread < kChunk)
    s.beta[thread] = thread < place.rows ? *row_pointer<float>(in.beta, place.first_token + thread, head) : 0.f;
  float d_beta = 0.f;  // this thread's share of row thread / 8

  for (int key0 = 0; key0 < kDim; key0 += kKeys) {
    load_rows<E, kKeys, kKeyPitch, kThreads>(s.q, in.q, place, head, key0);
    load_rows<E, kKeys, kKeyPitch, kThreads>(s.k, in.k, place, head, key0);
    load_rows<float, kKeys, kKeyPitch, kThreads>(s.decay, in.g, place, head, key0);

    // ---- products over the value columns
    constexpr int kWarpColumns = kKeys / 8, kWarpRows = kWarps / kWarpColumns, kRowTiles = 2 / kWarpRows;
    const int key_column0 = warp % kWarpColumns * 8, key_row0 = warp / kWarpColumns * 16 * kRowTiles;
    WarpTile<kRowTiles, 1> q1, y, k1;
    WarpTile<2, 1> d_pairs;  // warps 0-3: dA, warps 4-7: -dL; columns 8 (warp % 4) ..
    q1.clear(), y.clear(), k1.clear(), d_pairs.clear();
    constexpr int kLanesPerKey = kThreads / kKeys, kColumnsPerLane = kBlock / kLanesPerKey;
    float state_product = 0.f;
    for (int column0 = 0; column0 < kDim; column0 += kBlock) {
      __syncthreads();  // the previous block's tiles are free
      copy_tile<kKeys, kBlock, kPitch, kThreads>(s.sweep.state, w.states + states_at + key0 * kDim + column0, kDim);
      copy_tile<kKeys, kBlock, kPitch, kThreads>(s.sweep.d_state,
                                                 gradients.d_states + states_at + key0 * kDim + column0, kDim);
      copy_tile<kChunk, kBlock, kPitch, kThreads>(s.sweep.residuals, w.residuals + rows_at + column0, kDim);
      copy_tile<kChunk, kBlock, kPitch, kThreads>(s.sweep.d_residuals, gradients.d_residuals + rows_at + column0, kDim);
      copy_async_commit();
      if (a.output_type == Type::fp32)
        load_rows<float, kBlock, kPitch, kThreads>(s.sweep.d_output_and_x, a.d_o, place, head, column0);
      else load_rows<__nv_bfloat16, kBlock, kPitch, kThreads>(s.sweep.d_output_and_x, a.d_o, place, head, column0);
      copy_async_wait<0>();
      __syncthreads();

      float* x_tile = s.sweep.d_output_and_x + kChunk * kPitch;
      WarpTile<1, 1> x;  // 16 rows, 8 columns a warp
      x.clear();
      const int x_row0 = warp / 4 * 16, x_column0 = warp % 4 * 8;
      multiply<kChunk, kExact>(
          x, [&](int row, int j) { return s.inverse[j * kPitch + x_row0 + row]; },
          [&](int j, int column) { return s.sweep.d_residuals[j * kPitch + x_column0 + column]; });
      x.each_pair([&](int row, int column, float first, float second) {
        *reinterpret_cast<float2*>(x_tile + (x_row0 + row) * kPitch + x_column0 + column) = make_float2(first, second);
      });
      __syncthreads();

      const auto state = [&](int column, int key) { return s.sweep.state[(key_column0 + key) * kPitch + column]; };
      const auto d_state = [&](int column, int key) { return s.sweep.d_state[(key_column0 + key) * kPitch + column]; };
      multiply<kBlock, kExact>(
          q1, [&](int row, int column) { return s.sweep.d_output_and_x[(key_row0 + row) * kPitch + column]; }, state);
      multiply<kBlock, kExact>(
          y, [&](int row, int column) { return -x_tile[(key_row0 + row) * kPitch + column]; }, state);
      multiply<kBlock, kExact>(
          k1, [&](int row, int column) { return s.sweep.residuals[(key_row0 + row) * kPitch + column]; }, d_state);
      {
        const int key = thread / kLanesPerKey, column = thread % kLanesPerKey * kColumnsPerLane;
#pragma unroll
        for (int i = 0; i < kColumnsPerLane; ++i)
          state_product += s.sweep.state[key * kPitch + column + i] * s.sweep.d_state[key * kPitch + column + i];
      }
      if (key0 == 0) {
        multiply<kBlock, kExact>(
            d_pairs,
            [&](int row, int column) { return s.sweep.d_output_and_x[(warp / 4 * kChunk + row) * kPitch + column]; },
            [&](int column, int j) { return s.sweep.residuals[(warp % 4 * 8 + j) * kPitch + column]; });
        const int row = thread / 8, column = thread % 8 * 4;
        if (row < place.rows) {
          const float4 dx = *reinterpret_cast<float4*>(x_tile + row * kPitch + column);
          const float4 v = load4(row_pointer<E>(in.v, place.first_token + row, head) + column0 + column);
          d_beta += dx.x * v.x + dx.y * v.y + dx.z * v.z + dx.w * v.w;
          const float beta = s.beta[row];
          store4(row_pointer<E>(a.dv, place.first_token + row, head) + column0 + column,
                 make_float4(beta * dx.x, beta * dx.y, beta * dx.z, beta * dx.w));
        }
      }
    }
    state_product = sum_neighbours<kLanesPerKey>(state_product);
    if (thread % kLanesPerKey == 0) s.state_product[thread / kLanesPerKey] = state_product;
    __syncthreads();  // sweep tiles free: the key tiles take their place
    const auto keep = [&](WarpTile<kRowTiles, 1>& from, float* to) {
      from.each_pair([&](int row, int key, float first, float second) {
        *reinterpret_cast<float2*>(to + (key_row0 + row) * kKeyPitch + key_column0 + key) = make_float2(first, second);
      });
    };
    keep(q1, s.keys.q1);
    keep(y, s.keys.y);
    keep(k1, s.keys.k1);
    if (key0 == 0)
      d_pairs.each_pair([&](int row, int j, float first, float second) {
        float2* pair = s.d_pairs + row * (kChunk + 1) + warp % 4 * 8 + j;
        if (warp < 4) pair[0].x = first, pair[1].x = second;
        else pair[0].y = -first, pair[1].y = -second;
      });
    accumulate_decay<kKeys, kKeyPitch, kThreads>(s.decay);
    __syncthreads();

    // ---- sums over the other rows of the chunk; a thread owns one key channel and blocks of four rows
    constexpr int kGroups = kThreads / kKeys, kRowBlocks = kChunk / 4;
    const int key = thread % kKeys, group = thread / kKeys;
    const float* q_column = s.q + key;
    const float* k_column = s.k + key;
    const float* decay_column = s.decay + key;
    const float last_decay = decay_column[(kChunk - 1) * kKeyPitch];
    for (int turn = 0; turn < kRowBlocks / kGroups; ++turn) {
      const int block =
          turn % 2 == 0 ? turn * kGroups + group : (turn + 1) * kGroups - 1 - group;  // there and back: even shares
      const int row0 = 4 * block;
      float q[4], k[4], decay[4], dq[4] = {}, r[4] = {}, c[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        q[i] = q_column[(row0 + i) * kKeyPitch];
        k[i] = k_column[(row0 + i) * kKeyPitch];
        decay[i] = decay_column[(row0 + i) * kKeyPitch];
      }
      for (int j = 0; j < row0 + 3; ++j) {  // earlier rows
        const float other_k = k_column[j * kKeyPitch], other_decay = decay_column[j * kKeyPitch];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = s.d_pairs[(row0 + i) * (kChunk + 1) + j];
          const float decayed = j < row0 + i ? other_k * fast_exp2(decay[i] - other_decay) : 0.f;
          dq[i] += pair.x * decayed;
          r[i] += pair.y * decayed;
        }
      }
      for (int j = row0 + 1; j < kChunk; ++j) {  // later rows
        const float other_q = scale * q_column[j * kKeyPitch], other_k = s.beta[j] * k_column[j * kKeyPitch];
        const float other_decay = decay_column[j * kKeyPitch];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = s.d_pairs[j * (kChunk + 1) + row0 + i];
          const float factor = j > row0 + i ? fast_exp2(other_decay - decay[i]) : 0.f;
          c[i] += (pair.x * other_q + pair.y * other_k) * factor;
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row0 + i, at = row * kKeyPitch + key;
        const float same = s.d_pairs[row * (kChunk + 1) + row].x, beta = s.beta[row], growth = fast_exp2(decay[i]);
        const float from_state = fast_exp2(last_decay - decay[i]) * s.keys.k1[at];
        dq[i] = scale * (growth * s.keys.q1[at] + dq[i]);
        r[i] += growth * s.keys.y[at];
        const float dk = beta * r[i] + c[i] + from_state;
        if (row < place.rows) {
          store1(row_pointer<E>(a.dq, place.first_token + row, head) + key0 + key, dq[i] + scale * same * k[i]);
          store1(row_pointer<E>(a.dk, place.first_token + row, head) + key0 + key, dk + scale * same * q[i]);
        }
        s.keys.q1[at] = q[i] * dq[i] + k[i] * (beta * r[i] - c[i] - from_state);  // dG
        s.keys.y[at] = k[i] * r[i];                                               // towards dbeta
        s.keys.k1[at] = k[i] * from_state;                                        // towards dG of the last row
      }
    }
    __syncthreads();
    if (thread < kKeys) {
      float sum = fast_exp2(last_decay) * s.state_product[thread];
      for (int row = 0; row < kChunk; ++row) sum += s.keys.k1[row * kKeyPitch + thread];
      for (int row = kChunk - 1; row >= 0; --row) {
        sum += s.keys.q1[row * kKeyPitch + thread];
        if (row < place.rows) *(row_pointer<float>(a.dg, place.first_token + row, head) + key0 + thread) = sum;
      }
    }
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) d_beta += s.keys.y[thread / 8 * kKeyPitch + thread % 8 + 8 * i];
    __syncthreads();
  }
  d_beta = sum_neighbours<8>(d_beta);
  if (thread % 8 == 0 && thread / 8 < place.rows)
    *row_pointer<float>(a.dbeta, place.first_token + thread / 8, head) = d_beta;
}

}  // namespace

cudaError_t launch_gradients(const BackwardArguments& a, const ChunkWorkspace& workspace,
                             const BackwardWorkspace& gradients, cudaStream_t stream) {
  const Shape& shape = a.inputs.shape;
  if (shape.tokens == 0) return cudaSuccess;
  return dispatch(shape.dim, a.inputs.type, [&]<int kDim, class E>() {
    return launch(gradients_kernel<kDim, E>, dim3(static_cast<unsigned>(max_chunks(shape)), shape.heads), kThreads,
                  sizeof(Shared<kDim>), stream, a, workspace, gradients);
  });
}

}  // namespace k3::cuda::kda
