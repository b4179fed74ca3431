// Tensors of more than 2^31 elements, on a GPU only: filled, counted and read there. What they hold comes from a hash
// of the element's index.
#pragma once

#include "kernels_cuda/layer_cases.h"

namespace k3::cuda::testing {

enum class Fill { rows, decays, fractions };  // (-1, 1); log decays of a bounded gate; (0, 1)

inline __device__ float uniform(std::uint64_t at, std::uint64_t seed) {  // splitmix64
  std::uint64_t x = at * 0x9e3779b97f4a7c15ull + seed;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull, x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<float>((x ^ (x >> 31)) >> 40) * 0x1p-24f;
}
template <class E>
__global__ void fill_kernel(E* out, std::int64_t count, std::uint64_t seed, Fill fill, float size) {
  for (std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x; i < count; i += gridDim.x * std::int64_t{256}) {
    const float x = uniform(static_cast<std::uint64_t>(i), seed);
    const float value = fill == Fill::rows ? 2 * x - 1 : fill == Fill::decays ? -5 / (1 + expf(2 - 6 * (x - 0.5f))) : x;
    out[i] = static_cast<E>(size * value);
  }
}
template <class E>
void fill(const Buffer& buffer, std::uint64_t seed, Fill how = Fill::rows, float size = 1) {
  const auto count = static_cast<std::int64_t>(buffer.bytes() / sizeof(E));
  fill_kernel<E><<<2048, 256>>>(buffer.as<E>(), count, seed, how, size);
  REQUIRE_CUDA(cudaGetLastError());
}

template <class E>
__global__ void count_kernel(const E* values, std::int64_t count, unsigned long long* not_finite) {
  unsigned long long mine = 0;
  for (std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x; i < count; i += gridDim.x * std::int64_t{256})
    mine += !isfinite(static_cast<float>(values[i]));
  if (mine) atomicAdd(not_finite, mine);
}
template <class E>
bool finite(const char* what, const Buffer& buffer) {
  Buffer total = upload(std::vector<unsigned long long>{0});
  const auto count = static_cast<std::int64_t>(buffer.bytes() / sizeof(E));
  count_kernel<E><<<2048, 256>>>(buffer.as<E>(), count, total.as<unsigned long long>());
  const unsigned long long bad = download<unsigned long long>(total)[0];
  if (bad)
    std::printf("    FAIL %s: %llu of %lld values not finite or not written\n", what, bad,
                static_cast<long long>(count));
  return bad == 0;
}

inline bool enough_memory(std::size_t bytes) {
  std::size_t available = 0, total = 0;
  REQUIRE_CUDA(cudaMemGetInfo(&available, &total));
  if (available >= bytes + (std::size_t{1} << 30)) return true;
  std::printf("    skipped: needs %.1f GB of GPU memory, %.1f GB are free\n", 1e-9 * bytes, 1e-9 * available);
  return false;
}

// `count` elements at element `from` of a tensor in device memory.
inline std::vector<char> bytes_at(const void* data, std::int64_t from, std::int64_t count, int element) {
  std::vector<char> out(static_cast<std::size_t>(count) * element);
  copy_out(out.data(), static_cast<const char*>(data) + from * element, out.size());
  return out;
}
inline bool same(const char* what, const std::vector<char>& got, const std::vector<char>& want) {
  if (got == want) return true;
  const auto at = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
  std::printf("    FAIL %s: byte %td of %zu differs\n", what, at, got.size());
  return false;
}

}  // namespace k3::cuda::testing
