// k3 quantize and back: only experts change, values stay exact where the format can hold them.
#include "checkpoint/convert_experts.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/files.h"
#include "checkpoint/float_values.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/support.h"

namespace k3::test {
namespace {

std::vector<float> decoded(const Checkpoint& checkpoint, const std::string& stem) {
  const TensorView &codes = checkpoint.at(stem + ".weight_packed"), &scales = checkpoint.at(stem + ".weight_scale");
  const auto bytes = [](const TensorView& view) {
    return std::span(reinterpret_cast<const std::uint8_t*>(view.bytes.data()), view.bytes.size());
  };
  std::vector<float> values(codes.bytes.size() * 2);
  mxfp4_decode(bytes(codes), bytes(scales), values);
  return values;
}

std::vector<float> plain(const Checkpoint& checkpoint, const std::string& name) {
  const TensorView& view = checkpoint.at(name);
  std::vector<float> values(static_cast<std::size_t>(view.elements()));
  read_floats(view, 0, values);
  return values;
}

bool is_expert(const std::string& name) { return name.find(".experts.") != std::string::npos; }

TEST(ConvertExperts, UnpackingIsExactAndPackingBringsTheValuesBack) {
  const TempDir folder;
  const auto source = data("golden/k3-tiny");
  const ConvertReport unpacked =
      convert_experts(source, folder / "plain", {.pack = false, .max_shard_bytes = 1'000'000, .progress = {}});
  EXPECT_EQ(unpacked.matrices, 6 * 16 * 3);
  const ConvertReport packed = convert_experts(folder / "plain", folder / "packed", {});
  EXPECT_EQ(packed.bytes_after, unpacked.bytes_before);
  EXPECT_EQ(read_config(folder / "packed"), read_config(source));
  EXPECT_FALSE(read_config(folder / "plain").packed_experts);
  const Checkpoint before(source), between(folder / "plain"), after(folder / "packed");
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& [name, view] : before.tensors()) {
    if (!is_expert(name)) {
      EXPECT_TRUE(std::ranges::equal(view.bytes, between.at(name).bytes)) << name;
      EXPECT_TRUE(std::ranges::equal(view.bytes, after.at(name).bytes)) << name;
      EXPECT_EQ(view.shape, after.at(name).shape) << name;
    } else if (name.ends_with(".weight_packed")) {
      const std::string stem = name.substr(0, name.rfind('.'));
      EXPECT_EQ(decoded(before, stem), plain(between, stem + ".weight")) << name;
      EXPECT_EQ(decoded(before, stem), decoded(after, stem)) << name;
    }
  }
}

TEST(ConvertExperts, OtherFilesAreTakenOver) {
  const TempDir folder;
  std::filesystem::copy(data("golden/k3-tiny-softplus"), folder / "in", std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder / "in" / "expected.safetensors");
  std::ofstream(folder / "in" / "tiktoken.model") << "ranks";
  std::filesystem::create_directory(folder / "in" / "extra");
  std::ofstream(folder / "in" / "extra" / "note.txt") << "note";
  convert_experts(folder / "in", folder / "out", {});
  EXPECT_EQ(read_file(folder / "out" / "tiktoken.model"), "ranks");
  EXPECT_EQ(read_file(folder / "out" / "extra" / "note.txt"), "note");
  const ModelConfig config = read_config(folder / "out");
  EXPECT_TRUE(config.packed_experts);
  EXPECT_NO_THROW(check_tensors(config, Checkpoint(folder / "out")));
}

TEST(ConvertExperts, PackingErrorIsThatOfFourBits) {
  const TempDir folder;
  const auto source = data("golden/k3-tiny-softplus");
  convert_experts(source, folder / "out", {});
  const Checkpoint before(source), after(folder / "out");
  double error = 0, total = 0;
  for (const auto& [name, view] : before.tensors()) {
    if (!is_expert(name) || name.find("shared") != std::string::npos) continue;
    const std::vector<float> want = plain(before, name), got = decoded(after, name.substr(0, name.rfind('.')));
    for (std::size_t at = 0; at < want.size(); ++at)
      error += std::pow(want[at] - got[at], 2), total += std::pow(want[at], 2);
  }
  EXPECT_NEAR(error / total, 0.0131, 0.002);  // training.md 3.2, Gaussian weights, rule FLOOR
}

TEST(ConvertExperts, Refusals) {
  const TempDir folder;
  const auto packed = data("golden/k3-tiny"), plain_folder = data("golden/k3-tiny-softplus");
  expect_user_error([&] { convert_experts(packed, folder / "out", {}); }, {"are MXFP4 already"});
  expect_user_error(
      [&] {
        convert_experts(plain_folder, folder / "out", {.pack = false, .max_shard_bytes = 1 << 30, .progress = {}});
      },
      {"are plain floats already"});
  expect_user_error([&] { convert_experts(folder / "nothing", folder / "out", {}); }, {"nothing"});
  std::filesystem::create_directory(folder / "taken");
  std::ofstream(folder / "taken" / "file") << "x";
  expect_user_error([&] { convert_experts(plain_folder, folder / "taken", {}); }, {"taken: already exists"});
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

// One byte of one scale set to 0 or 255, one weight set to infinity: nothing is written.
TEST(ConvertExperts, DamagedWeights) {
  const TempDir folder;
  std::filesystem::copy(data("golden/k3-tiny"), folder / "in", std::filesystem::copy_options::recursive);
  std::filesystem::copy(data("golden/k3-tiny-softplus"), folder / "plain", std::filesystem::copy_options::recursive);
  const auto poke = [](const TensorView& view, const std::string& bytes) {
    const MappedFile map(view.file);
    const std::ptrdiff_t header = 8 + *reinterpret_cast<const std::int64_t*>(map.bytes().data());
    for (const TensorView& same : parse_safetensors(map.bytes(), view.file)) {
      if (same.name != view.name) continue;
      const std::ptrdiff_t at = same.bytes.data() - map.bytes().data();
      EXPECT_GE(at, header);
      std::fstream file(view.file, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at + 2);
      file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  };
  const std::string scale = "language_model.model.layers.1.block_sparse_moe.experts.3.w2.weight_scale";
  poke(Checkpoint(folder / "in").at(scale), std::string(1, '\0'));
  expect_user_error(
      [&] {
        convert_experts(folder / "in", folder / "out", {.pack = false, .max_shard_bytes = 1 << 30, .progress = {}});
      },
      {scale, "scale byte 0x00 at 2"});
  const std::string weight = "language_model.model.layers.1.block_sparse_moe.experts.3.w2.weight";
  poke(Checkpoint(folder / "plain").at(weight), "\x80\x7f");
  expect_user_error([&] { convert_experts(folder / "plain", folder / "out", {}); }, {weight, "inf"});
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

}  // namespace
}  // namespace k3::test
