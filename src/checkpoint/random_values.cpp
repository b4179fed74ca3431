#include "checkpoint/random_values.h"

#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <numbers>

#include "base/error.h"

namespace k3 {
namespace {

constexpr std::size_t kSteps = 65536;
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio: spreads consecutive positions

// Finaliser of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
  return bits ^ bits >> 31;
}

double normal_below(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi); }

// Quantiles of the middle of each step. From the centre outwards the neighbour is a close start for Newton's method.
std::array<double, kSteps> make_quantiles() {
  std::array<double, kSteps> quantiles{};
  double x = 0.0;
  for (std::size_t step = kSteps / 2; step < kSteps; ++step) {
    const double wanted = (static_cast<double>(step) + 0.5) / kSteps;
    for (int iteration = 0; iteration < 4; ++iteration) x -= (normal_below(x) - wanted) / normal_density(x);
    quantiles[step] = x;
    quantiles[kSteps - 1 - step] = -x;
  }
  return quantiles;
}

const std::array<double, kSteps>& quantiles() {
  static const auto table = std::make_unique<std::array<double, kSteps>>(make_quantiles());
  return *table;
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The table scaled and converted once; kept by the thread, because a checkpoint asks for the same deviation again and
// again.
template <class Value>
const std::array<Value, kSteps>& scaled_quantiles(double deviation) {
  thread_local double made_for = -1.0;
  thread_local std::unique_ptr<std::array<Value, kSteps>> table;
  if (!table) table = std::make_unique<std::array<Value, kSteps>>();
  if (made_for != deviation) {
    for (std::size_t step = 0; step < kSteps; ++step) {
      const auto value = static_cast<float>(quantiles()[step] * deviation);
      if constexpr (sizeof(Value) == 2) (*table)[step] = to_bf16(value);
      else (*table)[step] = value;
    }
    made_for = deviation;
  }
  return *table;
}

template <class Value>
void fill_normal(std::uint64_t key, std::uint64_t first, double deviation, std::span<Value> out) {
  K3_CHECK(first % 4 == 0, "random values begin at position {}, not a multiple of 4", first);
  const std::array<Value, kSteps>& table = scaled_quantiles<Value>(deviation);
  const std::size_t whole = out.size() / 4 * 4;
  for (std::size_t at = 0; at < whole; at += 4) {
    const std::uint64_t bits = random_bits(key, (first + at) / 4);
    out[at] = table[bits & 0xffff];
    out[at + 1] = table[bits >> 16 & 0xffff];
    out[at + 2] = table[bits >> 32 & 0xffff];
    out[at + 3] = table[bits >> 48];
  }
  if (whole < out.size()) {
    std::uint64_t bits = random_bits(key, (first + whole) / 4);
    for (std::size_t at = whole; at < out.size(); ++at, bits >>= 16) out[at] = table[bits & 0xffff];
  }
}

}  // namespace

std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a of the name
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return mixed(hash + mixed(seed + kGolden));
}

std::uint64_t random_bits(std::uint64_t key, std::uint64_t position) { return mixed(key + (position + 1) * kGolden); }

double random_uniform(std::uint64_t key, std::uint64_t position) {
  return (static_cast<double>(random_bits(key, position) >> 11) + 0.5) * 0x1p-53;
}

void random_normal(std::uint64_t key, std::uint64_t first, double deviation, std::span<float> out) {
  fill_normal(key, first, deviation, out);
}

void random_normal_bf16(std::uint64_t key, std::uint64_t first, double deviation, std::span<std::uint16_t> out) {
  fill_normal(key, first, deviation, out);
}

}  // namespace k3
