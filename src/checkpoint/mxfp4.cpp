// Decode: a table of 256 pairs, times the power of two. Encode: nearest of the eight magnitudes, ties to the even code.
#include "checkpoint/mxfp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace k3 {
namespace {

constexpr std::array<float, 16> kCodeValues = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

struct Pair {
  float even, odd;
};

constexpr std::array<Pair, 256> make_pairs() {
  std::array<Pair, 256> pairs{};
  for (std::size_t byte = 0; byte < 256; ++byte) pairs[byte] = {kCodeValues[byte & 15], kCodeValues[byte >> 4]};
  return pairs;
}
constexpr std::array<Pair, 256> kPairs = make_pairs();

// 2^(byte - 127): the byte is the exponent field of a float (0 would be 2^-127, a subnormal; 255 is not a number).
float power_of_two(std::uint8_t byte) {
  if (byte == 0) return std::bit_cast<float>(std::uint32_t{0x00400000});
  return byte == 255 ? std::bit_cast<float>(std::uint32_t{0x7fc00000})
                     : std::bit_cast<float>(std::uint32_t{byte} << 23);
}

void check_sizes(std::size_t values, std::size_t packed, std::size_t scales) {
  K3_CHECK(values % kMxfp4Group == 0 && packed * 2 == values && scales * kMxfp4Group == values,
           "MXFP4: {} values, {} code bytes and {} scale bytes do not belong together", values, packed, scales);
}

// floor(log2(amax)) + 127 - 2, within 1..254; 1 for a group of zeros and for subnormals.
std::uint8_t scale_of(float amax) {
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(amax) >> 23);
  return static_cast<std::uint8_t>(std::clamp(exponent - 2, 1, 254));
}

std::uint32_t code_of(float scaled) {
  const float magnitude = std::fabs(scaled);
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(scaled) >> 31 << 3;
  return sign + (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) +
         (magnitude > 2.5f) + (magnitude >= 3.5f) + (magnitude > 5.0f);
}

}  // namespace

void mxfp4_decode(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales, std::span<float> out) {
  check_sizes(out.size(), packed.size(), scales.size());
  const std::uint8_t* codes = packed.data();
  float* to = out.data();
  for (const std::uint8_t scale_byte : scales) {
    const float scale = power_of_two(scale_byte);
    for (std::int64_t at = 0; at < kMxfp4Group / 2; ++at) {
      const Pair pair = kPairs[*codes++];
      *to++ = pair.even * scale;
      *to++ = pair.odd * scale;
    }
  }
}

void mxfp4_decode_bf16(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                       std::span<std::uint16_t> out) {
  check_sizes(out.size(), packed.size(), scales.size());
  std::array<float, kMxfp4Group> values;
  for (std::size_t group = 0; group < scales.size(); ++group) {
    mxfp4_decode(packed.subspan(group * 16, 16), scales.subspan(group, 1), values);
    for (std::size_t at = 0; at < values.size(); ++at)
      out[group * kMxfp4Group + at] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[at]) >> 16);
  }
}

void mxfp4_encode(std::span<const float> values, std::span<std::uint8_t> packed, std::span<std::uint8_t> scales) {
  check_sizes(values.size(), packed.size(), scales.size());
  for (std::size_t group = 0; group < scales.size(); ++group) {
    const std::span<const float> from = values.subspan(group * kMxfp4Group, kMxfp4Group);
    float amax = 0.0f;
    for (const float value : from) amax = std::max(amax, std::fabs(value));
    scales[group] = scale_of(amax);
    const float scale = power_of_two(scales[group]);
    // Dividing is exact for every power of two; the reciprocal of 2^127 would be subnormal.
    for (std::size_t at = 0; at < kMxfp4Group / 2; ++at)
      packed[group * 16 + at] =
          static_cast<std::uint8_t>(code_of(from[2 * at] / scale) | code_of(from[2 * at + 1] / scale) << 4);
  }
}

void check_mxfp4_scales(std::span<const std::uint8_t> scales, const std::string& file, const std::string& tensor) {
  for (const std::uint8_t unusable : {0, 255}) {
    const void* found = scales.empty() ? nullptr : std::memchr(scales.data(), unusable, scales.size());
    if (found != nullptr)
      throw_user(
          "{}: tensor {}: scale byte 0x{:02X} at {}; scales must be 0x01 to 0xFE, the file is damaged or not MXFP4",
          file, tensor, unusable, static_cast<const std::uint8_t*>(found) - scales.data());
  }
}

}  // namespace k3
