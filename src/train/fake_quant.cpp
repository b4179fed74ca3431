#include "train/fake_quant.h"

#include "base/error.h"
#include "checkpoint/mxfp4.h"  // kMxfp4Group

namespace k3::train {

Tensor mxfp4_round(const Tensor& values) {
  K3_CHECK(values.size(-1) % kMxfp4Group == 0, "MXFP4 needs a multiple of {} columns, got {}", kMxfp4Group,
           values.size(-1));
  K3_CHECK(values.scalar_type() == at::kFloat, "MXFP4 rounding works on fp32 masters");
  at::NoGradGuard no_grad;
  const Tensor groups = values.contiguous().view({-1, kMxfp4Group});
  const Tensor largest = groups.abs().amax(-1, /*keepdim=*/true);
  // The exponent field of an fp32 number is floor(log2) + 127, so the scale byte is that field minus 2; as fp32 bits it
  // is the scale itself.
  const Tensor exponent = largest.view(at::kInt).bitwise_right_shift(23).sub_(2).clamp_(1, 254);
  const Tensor scale = exponent.bitwise_left_shift(23).view(at::kFloat);
  const Tensor scaled = groups / scale;  // exact: the scale is a power of two
  const Tensor size = scaled.abs();
  // Code spacing: 0.5 below 2, 1 below 4, then 2; at::round rounds halves to even, which are the even codes.
  const Tensor step = at::where(size < 2, 0.5, at::where(size < 4, 1.0, 2.0)).to(at::kFloat);
  const Tensor code = at::round(scaled / step).mul_(step).clamp_(-6.0, 6.0);
  return code.mul_(scale).view_as(values);
}

}  // namespace k3::train
