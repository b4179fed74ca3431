#include "checkpoint/float_values.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace k3 {
namespace {

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// Sign, 5 bits of exponent (bias 15), 10 bits of mantissa.
float from_f16(std::uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                               : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25));
}

template <class Stored, class Convert>
void read_as(const std::byte* from, std::span<float> out, Convert convert) {
  for (std::size_t at = 0; at < out.size(); ++at) {
    Stored value;
    std::memcpy(&value, from + at * sizeof(Stored), sizeof(Stored));
    out[at] = convert(value);
  }
}

}  // namespace

void read_floats(const TensorView& view, std::int64_t first, std::span<float> out) {
  const std::int64_t width = dtype_bytes(view.dtype);
  K3_CHECK(first >= 0 &&
               (first + static_cast<std::int64_t>(out.size())) * width <= static_cast<std::int64_t>(view.bytes.size()),
           "elements {}..{} are outside of tensor {}", first, first + static_cast<std::int64_t>(out.size()), view.name);
  const std::byte* from = view.bytes.data() + first * width;
  switch (view.dtype) {
    case Dtype::BF16: return read_as<std::uint16_t>(from, out, from_bf16);
    case Dtype::F16: return read_as<std::uint16_t>(from, out, from_f16);
    case Dtype::F32: return read_as<float>(from, out, [](float value) { return value; });
    case Dtype::F64: return read_as<double>(from, out, [](double value) { return static_cast<float>(value); });
    default:
      throw_user("{}: tensor {} is {}; a float type is needed here", view.file.string(), view.name,
                 dtype_name(view.dtype));
  }
}

}  // namespace k3
