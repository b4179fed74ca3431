// What is trained is what is exported: MXFP4 rounding on tensors equals encode + decode of checkpoint/mxfp4.h bit for
// bit.
#include <gtest/gtest.h>

#include "checkpoint/mxfp4.h"
#include "ops/mxfp4/mxfp4.h"

namespace k3::train {
namespace {

Tensor through_the_file_format(const Tensor& values) {
  const auto count = static_cast<std::size_t>(values.numel());
  std::vector<std::uint8_t> packed(count / 2), scales(count / 32);
  mxfp4_encode({values.const_data_ptr<float>(), count}, packed, scales);
  Tensor out = at::empty_like(values);
  mxfp4_decode(packed, scales, {out.mutable_data_ptr<float>(), count});
  return out;
}

TEST(Quantization, VectorOfTheReference) {
  Tensor x = at::zeros({32});
  const std::vector<float> values = {.07f, -.31f, .45f, 1.20f, -2.6f, 3.1f, 5.0f, -6.5f},
                           want = {0, -.5f, .5f, 1, -3, 3, 4, -6};
  for (std::size_t index = 0; index < values.size(); ++index) x[static_cast<std::int64_t>(index)] = values[index];
  const Tensor got = ops::mxfp4_round(x);
  for (std::size_t index = 0; index < want.size(); ++index)
    EXPECT_EQ(got[static_cast<std::int64_t>(index)].item<float>(), want[index]);
}

TEST(Quantization, EqualsTheFileFormatBitForBit) {
  at::manual_seed(7);
  Tensor values = at::randn({64, 96});
  values.mul_(at::exp2(at::randint(-60, 60, {64, 1})));             // many magnitudes
  values.view({-1, 32})[3].zero_();                                 // an empty group
  values.view({-1, 32})[5] = at::arange(32).to(at::kFloat) * 0.25;  // ties
  values.view({-1, 32})[6] = at::full({32}, 1e-38f);                // scale at its lower end
  values.view({-1, 32})[7] = at::full({32}, 3e38f);                 // and near its upper end
  const Tensor rounded = ops::mxfp4_round(values), file = through_the_file_format(values);
  EXPECT_TRUE(at::equal(rounded, file)) << "largest difference " << (rounded - file).abs().max();
  EXPECT_TRUE(at::equal(ops::mxfp4_round(rounded), rounded)) << "rounding what is rounded must change nothing";
  EXPECT_TRUE(at::equal(through_the_file_format(rounded), rounded));
}

}  // namespace
}  // namespace k3::train
