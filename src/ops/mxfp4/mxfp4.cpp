#include "ops/mxfp4/mxfp4.h"

#include "base/error.h"

namespace k3::ops {
namespace {

constexpr std::int64_t kGroup = 32;

Tensor grouped(const Tensor& values) {  // [..., columns] -> fp32 [..., groups, 32]
  K3_CHECK(values.size(-1) % kGroup == 0, "mxfp4: {} columns are not a multiple of {}", values.size(-1), kGroup);
  auto shape = values.sizes().vec();
  shape.back() /= kGroup;
  shape.push_back(kGroup);
  return values.detach().to(at::kFloat).reshape(shape);
}

// Scale byte: exponent of the largest magnitude minus 2 (6 = 1.5 * 2^2 is the largest code), kept within 1..254.
Tensor scale_bytes(const Tensor& groups) {
  const Tensor largest = groups.abs().amax(-1);
  const Tensor exponent = std::get<1>(at::frexp(largest)).to(at::kInt) - 1;  // floor(log2(largest))
  return at::where(largest > 0, exponent - 2 + 127, at::ones_like(exponent)).clamp(1, 254);
}

// Index into 0, .5, 1, 1.5, 2, 3, 4, 6; ties go to the even code.
Tensor magnitude_codes(const Tensor& magnitude) {
  return (magnitude > 0.25f).to(at::kInt) + (magnitude >= 0.75f).to(at::kInt) + (magnitude > 1.25f).to(at::kInt) +
         (magnitude >= 1.75f).to(at::kInt) + (magnitude > 2.5f).to(at::kInt) + (magnitude >= 3.5f).to(at::kInt) +
         (magnitude > 5.0f).to(at::kInt);
}

Tensor code_values(const Tensor& like) {
  return at::tensor({0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f}, at::kFloat).to(like.device());
}

// 2^(byte - 127) for bytes 1..254: the byte is the exponent field of an fp32.
Tensor power_of_two(const Tensor& bytes) { return bytes.to(at::kInt).bitwise_left_shift(23).view(at::kFloat); }

}  // namespace

Mxfp4 mxfp4_quantize(const Tensor& values) {
  const Tensor groups = grouped(values);
  const Tensor bytes = scale_bytes(groups);
  const Tensor scaled = groups / power_of_two(bytes).unsqueeze(-1);
  const Tensor codes = magnitude_codes(scaled.abs()) + at::signbit(scaled).to(at::kInt) * 8;
  auto shape = values.sizes().vec();
  shape.back() /= 2;
  shape.push_back(2);
  const Tensor pairs = codes.reshape(shape);
  return {(pairs.select(-1, 0) + pairs.select(-1, 1) * 16).to(at::kByte), bytes.to(at::kByte)};
}

Tensor mxfp4_dequantize(const Tensor& codes, const Tensor& scales, at::ScalarType dtype) {
  const Tensor nibbles = at::stack({codes.bitwise_and(15), codes.bitwise_right_shift(4)}, -1).to(at::kLong);
  auto shape = codes.sizes().vec();
  shape.back() = scales.size(-1);
  shape.push_back(kGroup);
  const Tensor values = code_values(codes).index({nibbles}).reshape(shape) * power_of_two(scales).unsqueeze(-1);
  shape.pop_back();
  shape.back() = codes.size(-1) * 2;
  return values.reshape(shape).to(dtype);
}

Tensor mxfp4_round(const Tensor& values) {
  const Tensor groups = grouped(values);
  const Tensor scale = power_of_two(scale_bytes(groups)).unsqueeze(-1);
  const Tensor scaled = groups / scale;
  const Tensor codes = magnitude_codes(scaled.abs()).to(at::kLong);
  const Tensor magnitude = code_values(values).narrow(0, 0, 8).index({codes});
  return at::copysign(magnitude * scale, groups).reshape(values.sizes()).to(values.scalar_type());
}

}  // namespace k3::ops
