// Both dialects of config.json, what absent keys mean, and every refusal of tests/data/checkpoint/config_errors.txt.
#include "checkpoint/config.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/published.h"
#include "checkpoint/support.h"

namespace k3::test {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kSource = K3_SOURCE_DIR;

std::string base_text(const std::string& name) { return read_file(kSource / "configs" / (name + ".json")); }

// "text_config.hidden_size = -5" or "remove text_config.hidden_size"
std::string edited(const std::string& text, const std::string& edit) {
  Json root = Json::parse(text);
  const bool remove = edit.starts_with("remove ");
  const auto equals = edit.find(" = ");
  std::string path = remove ? edit.substr(7) : edit.substr(0, equals);
  Json* at = &root;
  for (auto dot = path.find('.'); dot != std::string::npos; dot = path.find('.')) {
    at = &(*at)[path.substr(0, dot)];
    path = path.substr(dot + 1);
  }
  if (remove) at->erase(path);
  else (*at)[path] = Json::parse(edit.substr(equals + 3));
  return root.dump();
}

TEST(Config, PublishedFilesAreThePresets) {
  EXPECT_EQ(parse_config(base_text("kimi-k3"), "x"), kimi_k3_config());
  EXPECT_EQ(parse_config(base_text("kimi-linear-48b"), "x"), kimi_linear_48b_config());
  EXPECT_EQ(base_text("kimi-k3"), write_config(kimi_k3_config()));
  EXPECT_EQ(base_text("kimi-linear-48b"), write_config(kimi_linear_48b_config()));
}

TEST(Config, PublishedLayerKinds) {
  const ModelConfig k3 = kimi_k3_config(), linear = kimi_linear_48b_config();
  EXPECT_EQ(k3.kda_layers(), 69);
  EXPECT_EQ(k3.mla_layers(), 24);
  EXPECT_EQ(k3.moe_layers(), 92);
  for (const int layer : {3, 7, 87, 91, 92}) EXPECT_FALSE(k3.is_kda[static_cast<std::size_t>(layer)]) << layer;
  for (const int layer : {0, 1, 2, 4, 88, 90}) EXPECT_TRUE(k3.is_kda[static_cast<std::size_t>(layer)]) << layer;
  EXPECT_EQ(linear.kda_layers(), 20);
  for (const int layer : {3, 7, 11, 15, 19, 23, 26})
    EXPECT_FALSE(linear.is_kda[static_cast<std::size_t>(layer)]) << layer;
}

TEST(Config, GoldenCheckpointsRoundTrip) {
  for (const char* name : {"k3-tiny", "k3-tiny-softplus", "kimi-linear-tiny"}) {
    const ModelConfig config = read_config(data("golden") / name);
    EXPECT_EQ(parse_config(write_config(config), name), config) << name;
  }
}

TEST(Config, AbsentKeys) {
  const ModelConfig config = read_config(data("golden/k3-tiny-softplus/config.json"));
  EXPECT_EQ(config.family, Family::kimi_k3);
  EXPECT_FALSE(config.kda.gate_lower_bound.has_value());
  EXPECT_FALSE(config.kda.full_rank_gate);
  EXPECT_EQ(config.attn_res_block, 0);
  EXPECT_EQ(config.moe.latent_dim, 0);
  EXPECT_EQ(config.expert_input_dim(), config.hidden);
  EXPECT_EQ(config.mla.q_lora_rank, 0);
  EXPECT_FALSE(config.mla.output_gate);
  EXPECT_EQ(config.activation, Activation::situ);
  EXPECT_EQ(config.situ_beta, 1.0);
  EXPECT_EQ(config.situ_linear_beta, 0.0);
  EXPECT_FALSE(config.packed_experts);
  EXPECT_FALSE(config.vision.has_value());
  EXPECT_EQ(config.moe.routed_scaling_factor, 1.7);
  const std::string zero_beta = edited(base_text("kimi-k3"), "text_config.activation_situ_beta = 0");
  EXPECT_EQ(parse_config(zero_beta, "x").situ_beta, 1.0);
}

TEST(Config, FullRankGateWithoutLowerBoundIsSoftplus) {
  const ModelConfig config =
      parse_config(edited(base_text("kimi-k3"), "remove text_config.linear_attn_config.gate_lower_bound"), "x");
  EXPECT_TRUE(config.kda.full_rank_gate);
  EXPECT_FALSE(config.kda.gate_lower_bound.has_value());
}

TEST(Config, DenseModelRoundTrips) {
  const ModelConfig config = parse_config(edited(base_text("kimi-linear-48b"), "num_experts = 0"), "x");
  EXPECT_EQ(config.moe_layers(), 0);
  EXPECT_EQ(parse_config(write_config(config), "x"), config);
}

// transformers 5 writes the same architecture with other keys, alone or beside the published ones.
TEST(Config, TransformersDialect) {
  const ModelConfig alone = read_config(data("checkpoint/transformers5/config.json"));
  EXPECT_EQ(alone.family, Family::kimi_linear);
  EXPECT_EQ(alone.is_kda, (std::vector<bool>{true, true, true, true, false}));
  EXPECT_EQ(alone.kda.heads, 4);
  EXPECT_EQ(alone.kda.head_dim, 16);
  EXPECT_EQ(alone.moe.first_dense, 1);
  EXPECT_EQ(alone.moe.experts, 6);
  EXPECT_EQ(alone.moe.routed_scaling_factor, 2.446);
  EXPECT_EQ(parse_config(write_config(alone), "x"), alone);
  const ModelConfig both = read_config(data("checkpoint/transformers5/both.json"));
  EXPECT_EQ(both, read_config(data("golden/kimi-linear-tiny")));
}

TEST(Config, QuantizationAtTopLevelIsReadToo) {
  Json root = Json::parse(base_text("kimi-k3"));
  root["quantization_config"] = root["text_config"]["quantization_config"];
  root["text_config"].erase("quantization_config");
  EXPECT_EQ(parse_config(root.dump(), "x"), kimi_k3_config());
}

TEST(Config, EveryBadConfigIsRefused) {
  const std::vector<TextCase> cases = text_cases("checkpoint/config_errors.txt");
  EXPECT_GT(cases.size(), 40u);
  for (const TextCase& entry : cases) {
    SCOPED_TRACE(entry.at("edit"));
    const std::string text = edited(base_text(entry.at("base")), entry.at("edit"));
    expect_user_error([&] { parse_config(text, "some/config.json"); }, {"some/config.json: ", entry.at("error")});
  }
}

TEST(Config, DamagedText) {
  for (const char* text : {"", "{", "[]", "3", "{\"model_type\": }", "\xff\xfe", "nonsense"})
    expect_user_error([&] { parse_config(text, "some/config.json"); }, {"some/config.json: "});
  expect_user_error([] { parse_config(R"({"model_type":"kimi_k3","model_type":"kimi_linear"})", "c"); },
                    {"model_type appears twice"});
  expect_user_error([] { parse_config(std::string(100000, '['), "c"); }, {"nested deeper"});
  expect_user_error([] { parse_config(std::string(5 << 20, ' '), "c"); }, {"another file"});
  expect_user_error([] { read_config("/nowhere/config.json"); }, {"/nowhere/config.json"});
}

}  // namespace
}  // namespace k3::test
