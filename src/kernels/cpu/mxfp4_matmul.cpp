#include "kernels/cpu/mxfp4_matmul.h"

#include <array>
#include <bit>
#include <vector>

namespace k3::kernels {
namespace {

constexpr std::int64_t kGroup = 32;
constexpr std::array<float, 16> kValues = {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

struct Pair {
  float even, odd;
};

constexpr std::array<Pair, 256> make_pairs() {
  std::array<Pair, 256> pairs{};
  for (int byte = 0; byte < 256; ++byte) pairs[byte] = {kValues[byte & 15], kValues[byte >> 4]};
  return pairs;
}
constexpr std::array<Pair, 256> kPairs = make_pairs();

void decode_row(const std::uint8_t* codes, const std::uint8_t* scales, float* row, std::int64_t in_dim) {
  for (std::int64_t group = 0; group < in_dim / kGroup; ++group) {
    const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(scales[group]) << 23);
    for (std::int64_t j = 0; j < kGroup / 2; ++j) {
      const Pair pair = kPairs[codes[group * kGroup / 2 + j]];
      row[group * kGroup + 2 * j] = pair.even * scale;
      row[group * kGroup + 2 * j + 1] = pair.odd * scale;
    }
  }
}

// Sixteen independent sums let the compiler use vector registers without reordering a single chain.
__attribute__((target_clones("avx512f", "avx2", "default"))) float dot(const float* a, const float* b, std::int64_t count) {
  constexpr int kLanes = 16;
  float sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  float sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  return sum;
}

}  // namespace

void mxfp4_matmul(const float* x, const std::uint8_t* codes, const std::uint8_t* scales, float* y, std::int64_t tokens, std::int64_t out_dim,
                  std::int64_t in_dim) {
  std::vector<float> row(static_cast<std::size_t>(in_dim));
  for (std::int64_t out = 0; out < out_dim; ++out) {
    decode_row(codes + out * in_dim / 2, scales + out * in_dim / kGroup, row.data(), in_dim);
    for (std::int64_t token = 0; token < tokens; ++token) y[token * out_dim + out] = dot(x + token * in_dim, row.data(), in_dim);
  }
}

}  // namespace k3::kernels
