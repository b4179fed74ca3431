// Random checkpoints: exact layout, the same bytes however they are cut into pieces, values as training.md 1.8 wants
// them.
#include "checkpoint/random_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/files.h"
#include "checkpoint/float_values.h"
#include "checkpoint/published.h"
#include "checkpoint/random_values.h"
#include "checkpoint/support.h"

namespace k3::test {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(K3_SOURCE_DIR) / "configs";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

ModelConfig small_config(const std::string& base) {
  std::vector<std::string> settings = {"num_hidden_layers=5",
                                       "hidden_size=64",
                                       "vocab_size=512",
                                       "num_experts=4",
                                       "num_experts_per_token=2",
                                       "intermediate_size=96",
                                       "moe_intermediate_size=32",
                                       "num_attention_heads=2",
                                       "kv_lora_rank=32",
                                       "linear_attn_config.num_heads=3",
                                       "linear_attn_config.head_dim=16"};
  if (base == "kimi-k3") {
    for (const char* more : {"q_lora_rank=48", "routed_expert_hidden_size=64", "attn_res_block_size=2",
                             "vision_config.vt_num_hidden_layers=1", "vision_config.vt_hidden_size=32",
                             "vision_config.mm_hidden_size=32", "vision_config.qkv_hidden_size=48"})
      settings.emplace_back(more);
  }
  return parse_config(with_settings(read_file(kConfigs / (base + ".json")), settings), base);
}

std::vector<float> floats(const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.elements()));
  read_floats(view, 0, values);
  return values;
}

TEST(RandomValues, NormalDistribution) {
  std::vector<float> values(400'000);
  random_normal(random_key(1, "x"), 0, 0.5, values);
  double sum = 0, squares = 0, fourth = 0;
  for (const float value : values) sum += value, squares += value * value, fourth += std::pow(value, 4);
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 4 * 0.5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 0.25, 0.003);
  EXPECT_NEAR(fourth / count / 0.0625, 3.0, 0.06);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 0.5 * 4.4);
}

TEST(RandomValues, PositionsAreIndependentOfTheCut) {
  const std::uint64_t key = random_key(7, "tensor");
  std::vector<float> whole(1003), pieces(1003);
  random_normal(key, 0, 1.0, whole);
  random_normal(key, 0, 1.0, std::span(pieces).first(400));
  random_normal(key, 400, 1.0, std::span(pieces).subspan(400));
  EXPECT_EQ(whole, pieces);
  EXPECT_NE(random_key(7, "tensor"), random_key(7, "tensos"));
  EXPECT_NE(random_key(7, "tensor"), random_key(8, "tensor"));
}

// Frozen: a checkpoint named by its seed must stay the same checkpoint.
TEST(RandomValues, SeedsNameValuesForEver) {
  EXPECT_EQ(random_bits(random_key(0, "a"), 0), 4636007311957313724ull);
  EXPECT_EQ(random_bits(random_key(1, "model.norm.weight"), 12345), 14684249483286315560ull);
}

TEST(RandomCheckpoint, FitsItsConfig) {
  for (const char* base : {"kimi-k3", "kimi-linear-48b"}) {
    const TempDir folder;
    const ModelConfig config = small_config(base);
    write_random_checkpoint(config, folder / "out", {.seed = 3, .max_shard_bytes = 100'000, .progress = {}});
    EXPECT_EQ(read_config(folder / "out"), config);
    EXPECT_NO_THROW(check_tensors(config, Checkpoint(folder / "out"))) << base;
    expect_user_error([&] { write_random_checkpoint(config, folder / "out", {}); }, {"already exists"});
  }
}

TEST(RandomCheckpoint, SeedAndShardsDecideNothingElse) {
  const TempDir folder;
  const ModelConfig config = small_config("kimi-k3");
  write_random_checkpoint(config, folder / "a", {.seed = 5, .max_shard_bytes = 50'000, .progress = {}});
  write_random_checkpoint(config, folder / "b", {.seed = 5, .max_shard_bytes = 1 << 30, .progress = {}});
  write_random_checkpoint(config, folder / "c", {.seed = 6, .max_shard_bytes = 1 << 30, .progress = {}});
  const Checkpoint a(folder / "a"), b(folder / "b"), c(folder / "c");
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const auto& [name, view] : a.tensors()) {
    EXPECT_TRUE(std::ranges::equal(view.bytes, b.at(name).bytes)) << name;
    if (name.ends_with("proj.weight")) {
      EXPECT_FALSE(std::ranges::equal(view.bytes, c.at(name).bytes)) << name;
    }
  }
}

TEST(RandomCheckpoint, PiecesOfATensorJoin) {
  const ModelConfig config = small_config("kimi-k3");
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    const auto bytes = static_cast<std::size_t>(TensorSpec{tensor.name, tensor.dtype, tensor.shape}.bytes());
    std::vector<std::byte> whole(bytes), pieces(bytes);
    fill_random(config, tensor, 1, 0, whole);
    for (std::size_t at = 0; at < bytes; at += 192)
      fill_random(config, tensor, 1, static_cast<std::int64_t>(at),
                  std::span(pieces).subspan(at, std::min<std::size_t>(192, bytes - at)));
    EXPECT_EQ(whole, pieces) << tensor.name;
  }
}

TEST(RandomCheckpoint, ValuesOfEachKind) {
  const TempDir folder;
  const ModelConfig k3 = small_config("kimi-k3"), linear = small_config("kimi-linear-48b");
  write_random_checkpoint(k3, folder / "k3", {});
  write_random_checkpoint(linear, folder / "linear", {});
  const Checkpoint a(folder / "k3"), b(folder / "linear");
  const std::string layer = "language_model.model.layers.1.";
  for (const char* norm : {"input_layernorm.weight", "self_attn.o_norm.weight",
                           "block_sparse_moe.routed_expert_norm.weight", "mlp_res_norm.weight"})
    for (const float value : floats(a.at(layer + norm))) EXPECT_EQ(value, 1.0f) << norm;
  for (const char* norm : {"vision_tower.encoder.blocks.0.norm0.weight", "mm_projector.post_norm.weight",
                           "vision_tower.encoder.final_layernorm.weight"})
    for (const float value : floats(a.at(norm))) EXPECT_EQ(value, 1.0f) << norm;
  EXPECT_EQ(floats(a.at(layer + "self_attn.A_log")), (std::vector<float>{0, 0, 0, 0}));
  for (const float value : floats(b.at("model.layers.1.self_attn.A_log")))
    EXPECT_TRUE(value > 0.0f && value < std::log(16.0f)) << value;
  for (const float value : floats(a.at(layer + "self_attn.dt_bias"))) {
    const double dt = std::log1p(std::exp(value));
    EXPECT_TRUE(dt > 0.00099 && dt < 0.101) << dt;
  }
  for (const float value : floats(a.at(layer + "self_attn.q_conv1d.weight"))) EXPECT_LE(std::fabs(value), 0.5f);
  for (const char* random :
       {"mlp_res_proj.weight", "block_sparse_moe.gate.e_score_correction_bias", "self_attn.q_proj.weight"}) {
    const std::vector<float> values = floats(a.at(layer + random));
    EXPECT_NE(values[0], values[1]) << random;
    for (const float value : values) EXPECT_LT(std::fabs(value), 0.09f) << random;
  }
  const TensorView& scales = a.at(layer + "block_sparse_moe.experts.0.w1.weight_scale");
  for (const std::byte scale : scales.bytes) EXPECT_TRUE(scale == std::byte{119} || scale == std::byte{120});
}

TEST(Settings, TextThatIsNotUtf8) {
  const std::string text = write_config(kimi_k3_config());
  expect_user_error([&] { with_settings(text, {"hidden_size=\xff\xfe"}); }, {"not valid UTF-8"});
  expect_user_error([&] { with_settings(text, {"\x97=3"}); }, {"not valid UTF-8"});
}

TEST(Settings, EveryCase) {
  const std::vector<TextCase> cases = text_cases("checkpoint/settings.txt");
  EXPECT_GT(cases.size(), 8u);
  for (const TextCase& entry : cases) {
    SCOPED_TRACE(entry.at("set"));
    const auto make = [&] {
      return parse_config(with_settings(read_file(kConfigs / (entry.at("base") + ".json")), split(entry.at("set"))),
                          "config");
    };
    if (entry.contains("error")) {
      expect_user_error(make, {entry.at("error")});
      continue;
    }
    const std::string written = write_config(make());
    for (const auto& [key, fragment] : entry) {
      if (!key.starts_with("has")) continue;
      EXPECT_NE(written.find(fragment), std::string::npos) << fragment << " in " << written;
    }
  }
}

}  // namespace
}  // namespace k3::test
