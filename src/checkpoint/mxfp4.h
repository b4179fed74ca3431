// MXFP4 as published (checkpoint.md 2.2): two E2M1 codes a byte, low nibble = even column; one E8M0 scale byte for 32
// columns.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace k3 {

inline constexpr std::int64_t kMxfp4Group = 32;  // columns that share a scale

// packed [rows, columns / 2], scales [rows, columns / 32] -> out [rows, columns]; exact in float.
void mxfp4_decode(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales, std::span<float> out);

// The same as bf16 bit patterns; exact, because a code has two significant bits.
void mxfp4_decode_bf16(std::span<const std::uint8_t> packed, std::span<const std::uint8_t> scales,
                       std::span<std::uint16_t> out);

// Round to nearest even, saturating at 6 times the scale; scale = 2^(floor(log2(amax)) - 2) (training.md 3.2, rule
// FLOOR), clamped to bytes 1..254. Columns must be a multiple of 32 and values finite.
void mxfp4_encode(std::span<const float> values, std::span<std::uint8_t> packed, std::span<std::uint8_t> scales);

// Loaders call this on every weight_scale: 0x00 and 0xFF never occur in a sound file (checkpoint.md 2.2); UserError
// names file and tensor.
void check_mxfp4_scales(std::span<const std::uint8_t> scales, const std::string& file, const std::string& tensor);

}  // namespace k3
