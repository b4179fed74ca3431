// What drafts (step_drafts.cuh) do with the state: (c_t k_t)^T S and (c_t q_t)^T S of up to 8 drafts are one
// 16 x dim x dim matrix product a head on the tensor cores: rows 0 .. 7 the keys, 8 .. 15 the queries. Both operands
// are split in two terms, of bf16 for bf16 models (relative error about 2^-17 of the sum of magnitudes), of tf32 for
// fp32 ones (2^-21), and three products kept.
#pragma once

#include "kernels/cuda/kda/step_tile.cuh"

namespace k3::cuda::kda::step_detail {

// A number as two tf32 terms; the tensor core ignores the low 13 bits of the second.
struct Split {
  uint32_t high, low;
  __device__ __forceinline__ explicit Split(float x) {
    high = bits_of(x) & 0xffffe000u;
    low = bits_of(x - from_bits(high));
  }
};

// A lane's places of a draft's decayed k and q, split here for bf16 because every warp reads them in meet_state.
template <int kLane, class S>
__device__ __forceinline__ void store_decayed(S& s, int t, int first, const float (&k)[kLane],
                                              const float (&q)[kLane]) {
  using E = typename S::E;
  if constexpr (kLane == 4 && sizeof(E) == 2) {
    const SplitPair k0(k[0], k[1]), q0(q[0], q[1]), k1(k[2], k[3]), q1(q[2], q[3]);
    *reinterpret_cast<uint4*>(s.decayed(t) + 2 * first) = make_uint4(k0.high, q0.high, k1.high, q1.high);
    *reinterpret_cast<uint4*>(s.decayed(t, 1) + 2 * first) = make_uint4(k0.low, q0.low, k1.low, q1.low);
  } else {
    const auto put = [&](int key, int which, float x) {
      const int place = 8 * (key / 4) + 4 * (key / 2 % 2) + 2 * which + key % 2;
      store1(s.decayed(t) + place, x);
      if constexpr (sizeof(E) == 2) store1(s.decayed(t, 1) + place, x - round_to<E>(x));
    };
#pragma unroll
    for (int i = 0; i < kLane; ++i) put(first + i, 0, k[i]), put(first + i, 1, q[i]);
  }
}

template <class Terms>
struct Operands {
  Terms x, y;
};
// sums[c] += a y(c), three products of the terms each, two sums at a time: products that follow each other belong to
// different sums.
template <class Of, class Product>
__device__ __forceinline__ void multiply_split(float (&sums)[4][4], const uint32_t (&high)[4], const uint32_t (&low)[4],
                                               Of of, Product product) {
#pragma unroll
  for (int first = 0; first < 4; first += 2) {
    const auto y0 = of(first), y1 = of(first + 1);
#pragma unroll
    for (int p = 0; p < 3; ++p)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const auto& y = c == 0 ? y0 : y1;
        const uint32_t b[2] = {p == 1 ? y.x.low : y.x.high, p == 1 ? y.y.low : y.y.high};
        product(sums[first + c], p == 0 ? low : high, b);
      }
  }
}

// Tile map: both products with the state over this half of the keys. Lane l of a product holds rows l / 4 (+ 8) and
// the values of column l / 4: the tile's four columns are four products. The keys of a product are a lane's next ones,
// times the four lanes that share columns: their order does not matter.
template <class S>
__device__ __forceinline__ void meet_state(S& s, const Map<S::kDim>& map, int from, const Tile<S>& tile) {
  float sums[4][4] = {};
  const int row = map.lane / 4;
#pragma unroll
  for (int part = 0; part < S::kKeys / 4; ++part) {
    const int place = 2 * map.place_of_key(4 * part);
    const float4* x = tile.x + 4 * part;
    const float values[4][4] = {{x[0].x, x[0].y, x[0].z, x[0].w}, {x[1].x, x[1].y, x[1].z, x[1].w},
                                {x[2].x, x[2].y, x[2].z, x[2].w}, {x[3].x, x[3].y, x[3].z, x[3].w}};
    if constexpr (std::is_same_v<typename S::E, float>) {
      float four[8];
      load_lane(four, s.decayed(row) + place);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const Split a[4] = {Split(four[2 * i]), Split(four[2 * i + 2]), Split(four[2 * i + 1]), Split(four[2 * i + 3])};
        const auto of = [&](int c) { return Operands<Split>{Split(values[i][c]), Split(values[i + 1][c])}; };
        multiply_split(sums, {a[0].high, a[1].high, a[2].high, a[3].high}, {a[0].low, a[1].low, a[2].low, a[3].low}, of,
                       [](auto&... arguments) { tensor_core_tf32(arguments...); });
      }
    } else {
      const uint4 high = *reinterpret_cast<const uint4*>(s.decayed(row) + place),
                  low = *reinterpret_cast<const uint4*>(s.decayed(row, 1) + place);
      const auto of = [&](int c) {
        return Operands<SplitPair>{SplitPair(values[0][c], values[1][c]), SplitPair(values[2][c], values[3][c])};
      };
      multiply_split(sums, {high.x, high.y, high.z, high.w}, {low.x, low.y, low.z, low.w}, of,
                     [](auto&... arguments) { tensor_core_bf16(arguments...); });
    }
  }
  if (!S::kWhole) __syncthreads();  // sums take the place of the decayed vectors
  // Columns 2 (l % 4) and the next one of each product are value columns 8 (l % 4) + c and 4 more.
  const int column = map.column - 4 * (map.lane / 4) + 8 * (map.lane % 4);
  if (from + row < kChunk)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      *reinterpret_cast<float4*>(s.sums(map.half, e / 2, from + row) + column + 4 * (e % 2)) =
          make_float4(sums[0][e], sums[1][e], sums[2][e], sums[3][e]);
  pair_barrier(map);
}

// Before more drafts than fit one chunk: S <- c_n S + sum_t (c_n / c_t k_t) u_t^T, behind restore_keys() and a barrier.
template <class S>
__device__ __forceinline__ void absorb_drafts(S& s, const Map<S::kDim>& map, int from, int count, Tile<S>& tile) {
#pragma unroll
  for (int part = 0; part < S::kKeys; part += 4) {
    const int place = map.place_of_key(part);
    float run[4] = {1.f, 1.f, 1.f, 1.f};
    for (int t = 0; t < count; ++t) {
      float decay[4];
      load_lane(decay, s.decay(from + t) + place);
#pragma unroll
      for (int i = 0; i < 4; ++i) run[i] *= decay[i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) tile.x[part + i] = Tile<S>::scaled(tile.x[part + i], run[i]);
  }
  for (int t = 0; t < count; ++t) {
    float u[4];
    load_lane(u, s.sums(1, 1, from + t) + map.column);
#pragma unroll
    for (int part = 0; part < S::kKeys; part += 4) {
      float k[4];
      load_lane(k, s.q(from + t) + map.place_of_key(part));
#pragma unroll
      for (int i = 0; i < 4; ++i) Tile<S>::add_scaled(tile.x[part + i], k[i], u);
    }
  }
}

}  // namespace k3::cuda::kda::step_detail
