// The state of one row and head in the tile map (step_row.cuh): thread = 4 value columns of dim / 8 keys, in registers.
//
// What a warp holds is not what memory likes: 8 lanes that are served together touch four keys, 32 bytes each. Where
// there are bulk copies (kStaged: sm_90, dim 128 in bf16) the state therefore comes and goes through shared memory, a
// group of keys (8 KB) a copy, without occupying registers or the load and store units on its way; elsewhere by loads
// and stores of 16 bytes.
#pragma once

#include "kernels/cuda/kda/step_row.cuh"

namespace k3::cuda::kda::step_detail {

// Whether the architecture at hand has bulk copies. A staged kernel is not launched where there are none.
#if defined(K3_CUDA_EMULATOR) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kBulkCopies = true;
#else
constexpr bool kBulkCopies = false;
#endif

template <class S>
struct Tile {
  static constexpr int kDim = S::kDim, kKeys = S::kKeys;
  static constexpr bool kStaged = S::kStaged && kBulkCopies;
  using TileMap = Map<kDim>;
  float4 x[kKeys];

  // One thread, before a barrier of the block and before fetch().
  __device__ __forceinline__ static void open(S& s) {
    if constexpr (kStaged) barrier_init(shared_address(&s.arrival), 1), barrier_init_fence();
  }
  // Asks for the state; take() waits for it.
  __device__ __forceinline__ void fetch(S& s, const TileMap& map, const float* state) {
    if constexpr (kStaged) {
      if (map.thread >= S::kGroups) return;
      const uint32_t barrier = shared_address(&s.arrival);
      if (map.thread == 0) barrier_arrive_expect(barrier, S::kGroups * S::kGroupBytes);
      bulk_copy_in(shared_address(s.stage + map.thread * S::kGroupPitch), state + map.thread * kKeys * kDim,
                   S::kGroupBytes, barrier);
    } else {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) x[i] = load4(state + (map.first_key + i) * kDim + map.column);
    }
  }
  __device__ __forceinline__ void take(S& s, const TileMap& map) {
    if constexpr (kStaged) {
      barrier_wait(shared_address(&s.arrival), 0);
#pragma unroll
      for (int i = 0; i < kKeys; ++i) x[i] = *s.staged(map, i);
    }
  }
  // What add() has put into the stage goes to memory; the whole block comes here.
  __device__ __forceinline__ static void send(S& s, const TileMap& map, float* state) {
    if constexpr (kStaged) {
      static_assert(S::kGroups == TileMap::kWarps);
      async_proxy_fence();
      __syncthreads();
      if (map.lane > 0) return;
      bulk_copy_out(state + map.warp * kKeys * kDim, shared_address(s.stage + map.warp * S::kGroupPitch),
                    S::kGroupBytes);
      bulk_commit();
    }
  }
  // Before the block ends, and its shared memory with it.
  __device__ __forceinline__ static void close() {
    if constexpr (kStaged) bulk_wait_read<0>();
  }

  // Decays the state by token t's gate and writes D^T k and D^T q over this half of the keys to shared memory.
  __device__ __forceinline__ void decay_and_meet(S& s, const TileMap& map, int t) {
    float k_sums[4] = {}, q_sums[4] = {};
#pragma unroll
    for (int part = 0; part < kKeys; part += 4) {
      float q[4], k[4], decay[4];
      const int place = map.place_of_key(part);
      load_lane(q, s.q(t) + place), load_lane(k, s.k(t) + place), load_lane(decay, s.decay(t) + place);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float4& v = x[part + i];
        v = scaled(v, decay[i]);
        k_sums[0] = fmaf(v.x, k[i], k_sums[0]), k_sums[1] = fmaf(v.y, k[i], k_sums[1]);
        k_sums[2] = fmaf(v.z, k[i], k_sums[2]), k_sums[3] = fmaf(v.w, k[i], k_sums[3]);
        q_sums[0] = fmaf(v.x, q[i], q_sums[0]), q_sums[1] = fmaf(v.y, q[i], q_sums[1]);
        q_sums[2] = fmaf(v.z, q[i], q_sums[2]), q_sums[3] = fmaf(v.w, q[i], q_sums[3]);
      }
    }
    // Over the four lanes that share columns: each exchange halves what a lane carries, lane m ends with column m.
    const auto fold = [&](float(&sums)[4], int width) { fold_lanes(sums, width, map.lane, width); };
    fold(k_sums, 2), fold(q_sums, 2), fold(k_sums, 1), fold(q_sums, 1);
    s.sums(map.half, 0, t)[map.column + map.lane % 4] = k_sums[0];
    s.sums(map.half, 1, t)[map.column + map.lane % 4] = q_sums[0];
  }
  // S = D + k u^T for token t; u comes divided by |k|. Goes to memory where `state` is not null.
  __device__ __forceinline__ void add(S& s, const TileMap& map, int t, const float (&u)[4], float* state) {
#pragma unroll
    for (int part = 0; part < kKeys; part += 4) {
      float k[4];
      load_lane(k, s.k(t) + map.place_of_key(part));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        add_scaled(x[part + i], k[i], u);
        if (!state) continue;
        if constexpr (kStaged) *s.staged(map, part + i) = x[part + i];
        else store4(state + (map.first_key + part + i) * kDim + map.column, x[part + i]);
      }
    }
    if (state) send(s, map, state);
  }

  __device__ __forceinline__ static float4 scaled(float4 v, float factor) {
    return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
  }
  __device__ __forceinline__ static void add_scaled(float4& v, float k, const float (&u)[4]) {
    v.x = fmaf(k, u[0], v.x), v.y = fmaf(k, u[1], v.y), v.z = fmaf(k, u[2], v.z), v.w = fmaf(k, u[3], v.w);
  }
};

}  // namespace k3::cuda::kda::step_detail
