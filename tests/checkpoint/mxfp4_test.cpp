// MXFP4 against the vector cut from a real Kimi K3 shard (checkpoint.md 9), the worked blocks of training.md 9.3, and
// plain enumeration.
#include "checkpoint/mxfp4.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "support/files.h"

namespace k3::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Layer 4, expert 0, w1, row 0, group 0.
const Bytes kPublishedCodes = {0xAB, 0x4C, 0x18, 0x65, 0x2C, 0x91, 0x04, 0x39,
                               0x48, 0x94, 0x58, 0x33, 0x94, 0xB5, 0x5B, 0x30};
const Bytes kPublishedScale = {0x79};
const std::vector<std::uint16_t> kPublishedValues = {0xBCC0, 0xBC80, 0xBD00, 0x3D00, 0x8000, 0x3C00, 0x3D40, 0x3D80,
                                                     0xBD00, 0x3C80, 0x3C00, 0xBC00, 0x3D00, 0x0000, 0xBC00, 0x3CC0,
                                                     0x8000, 0x3D00, 0x3D00, 0xBC00, 0x8000, 0x3D40, 0x3CC0, 0x3CC0,
                                                     0x3D00, 0xBC00, 0x3D40, 0xBCC0, 0xBCC0, 0x3D40, 0x0000, 0x3CC0};

std::vector<float> decode(const Bytes& codes, const Bytes& scales) {
  std::vector<float> values(codes.size() * 2);
  mxfp4_decode(codes, scales, values);
  return values;
}

std::pair<Bytes, Bytes> encode(const std::vector<float>& values) {
  Bytes codes(values.size() / 2), scales(values.size() / 32);
  mxfp4_encode(values, codes, scales);
  return {codes, scales};
}

std::vector<float> one_group(std::vector<float> values) {
  values.resize(32, 0.0f);
  return values;
}

TEST(Mxfp4, PublishedVector) {
  std::vector<std::uint16_t> out(32);
  mxfp4_decode_bf16(kPublishedCodes, kPublishedScale, out);
  EXPECT_EQ(out, kPublishedValues);
  const std::vector<float> values = decode(kPublishedCodes, kPublishedScale);
  for (std::size_t at = 0; at < 32; ++at)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[at]), std::uint32_t{kPublishedValues[at]} << 16) << at;
}

TEST(Mxfp4, PublishedVectorEncodesBack) {
  const auto [codes, scales] = encode(decode(kPublishedCodes, kPublishedScale));
  EXPECT_EQ(codes, kPublishedCodes);
  EXPECT_EQ(scales, kPublishedScale);
}

TEST(Mxfp4, WorkedBlock) {
  const auto [codes, scales] = encode(one_group({.07f, -.31f, .45f, 1.20f, -2.6f, 3.1f, 5.0f, -6.5f}));
  EXPECT_EQ(scales, Bytes{127});
  EXPECT_EQ(decode(codes, scales), one_group({0.f, -.5f, .5f, 1.f, -3.f, 3.f, 4.f, -6.f}));
}

TEST(Mxfp4, ScaleIsTheFloorOfTheExponent) {
  const std::pair<float, int> cases[] = {{6.01f, 127}, {7.0f, 127},   {5.0f, 127}, {1.75f, 125},
                                         {4.0f, 127},  {3.999f, 126}, {8.0f, 128}};
  for (const auto& [amax, byte] : cases) EXPECT_EQ(encode(one_group({amax})).second[0], byte) << amax;
}

TEST(Mxfp4, TiesGoToTheEvenCodeAndLargeValuesSaturate) {
  const std::pair<float, float> cases[] = {{.25f, 0.f}, {.75f, 1.f}, {1.25f, 1.f}, {1.75f, 2.f}, {2.5f, 2.f},
                                           {3.5f, 4.f}, {5.f, 4.f},  {5.01f, 6.f}, {7.99f, 6.f}};
  for (const auto& [value, wanted] : cases) {
    for (const float sign : {1.0f, -1.0f}) {
      const auto [codes, scales] = encode(one_group({sign * value, 4.0f}));
      EXPECT_EQ(scales[0], 127);
      EXPECT_EQ(decode(codes, scales)[0], sign * wanted) << value;
    }
  }
}

// Every code at every usable scale survives decode and encode, unless the group is only zeros or its maximum leaves the
// range.
TEST(Mxfp4, CodesSurviveARoundTrip) {
  for (int scale = 1; scale <= 252; ++scale) {
    Bytes codes(16);
    for (int at = 0; at < 16; ++at)
      codes[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(at | (15 - at) << 4);
    const Bytes scales = {static_cast<std::uint8_t>(scale)};
    const auto [codes_back, scales_back] = encode(decode(codes, scales));
    ASSERT_EQ(scales_back, scales);
    ASSERT_EQ(codes_back, codes) << scale;
  }
}

TEST(Mxfp4, GroupOfZerosHasAUsableScale) {
  const auto [codes, scales] = encode(one_group({0.0f, -0.0f}));
  EXPECT_EQ(scales, Bytes{1});
  EXPECT_EQ(codes[0], 0x80);
  EXPECT_EQ(encode(one_group({1e-40f})).second, Bytes{1});
  EXPECT_EQ(encode(one_group({3e38f})).second, Bytes{252});
}

TEST(Mxfp4, LowNibbleIsTheEvenColumn) {
  const std::vector<float> values = decode(Bytes{0x72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, Bytes{127});
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], 6.0f);
}

TEST(Mxfp4, UnusableScalesAreRefused) {
  const Bytes good = {1, 121, 254};
  EXPECT_NO_THROW(check_mxfp4_scales(good, "f", "t"));
  EXPECT_NO_THROW(check_mxfp4_scales({}, "f", "t"));
  expect_user_error([] { check_mxfp4_scales(Bytes{121, 0}, "file", "tensor"); },
                    {"file: tensor tensor: scale byte 0x00 at 1"});
  expect_user_error([] { check_mxfp4_scales(Bytes{121, 121, 255}, "file", "tensor"); }, {"scale byte 0xFF at 2"});
}

}  // namespace
}  // namespace k3::test
