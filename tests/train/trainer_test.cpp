// Whole runs of recipes/tiny.toml on the CPU: the loss falls, a resumed run repeats the uninterrupted one bit for bit,
// bad numbers stop it.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"
#include "support/files.h"
#include "ops/mxfp4/mxfp4.h"
#include "train/metrics.h"
#include "train/parameters.h"
#include "train/plot.h"
#include "train/run_state.h"

namespace k3::train {
namespace {

namespace fs = std::filesystem;

// One thread: the tensors are small, and threads that wait for each other on a busy machine would take most of the
// time.
class Trainer : public testing::Test {
 protected:
  void SetUp() override {
    before_ = at::get_num_threads();
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(before_); }

 private:
  int before_ = 1;
};

// The tiny recipe on text alone, in batches of 2 x 128 tokens, with paths that do not depend on the working directory.
Recipe tiny(std::int64_t steps, std::vector<Setting> settings = {}) {
  const fs::path root = K3_SOURCE_DIR;
  const std::vector<Setting> small = {{"tokenizer", test::data("train/bytes").string()},
                                      {"data.docs.path", (root / "docs/training.md").string()},
                                      {"validation.docs.path", (root / "docs/architecture.md").string()},
                                      {"stage.learn.mixture.sums", "0"},
                                      {"stage.learn.tokens", std::to_string(steps * 256)},
                                      {"stage.learn.batch_tokens", "256"},
                                      {"stage.learn.micro_batch_tokens", "128"},
                                      {"stage.learn.context", "128"},
                                      {"train.validation_tokens", "256"}};
  settings.insert(settings.begin(), small.begin(), small.end());
  return read_recipe(root / "recipes/tiny.toml", settings);
}

std::vector<double> losses(const fs::path& run) {
  std::vector<double> values;
  for (const StepMetrics& step : read_metrics(run).steps) values.push_back(step.loss);
  return values;
}

std::string bytes_of(const fs::path& file) { return read_file(file); }

TEST_F(Trainer, LossFallsAndTheCheckpointIsAModel) {
  const test::TempDir folder;
  TrainOptions options;
  options.run = folder / "run";
  std::vector<std::string> lines;
  options.print = [&](const std::string& line) { lines.push_back(line); };
  ASSERT_EQ(train(tiny(16), options), TrainEnd::finished);
  const std::vector<double> values = losses(options.run);
  ASSERT_EQ(values.size(), 16u);
  EXPECT_GT(values.front(), 5.9);  // ln 512 = 6.24
  EXPECT_LT(values.back(), 0.8 * values.front());
  EXPECT_FALSE(read_metrics(options.run).validation.empty());
  const Model model = load_model(options.run / "checkpoints/latest",
                                 {.dtype = at::kFloat, .device = at::kCPU, .keep_experts_packed = true});
  EXPECT_TRUE(model.config.packed_experts);
  const std::string picture = plot_svg(read_metrics(options.run), "tiny <run>");
  EXPECT_NE(picture.find("tiny &lt;run&gt;"), std::string::npos);
  EXPECT_NE(picture.find("MaxVio"), std::string::npos);
  test::expect_user_error([&] { train(tiny(16), options); }, {"run", "--resume"});
}

TEST_F(Trainer, ResumedRunEqualsTheUninterruptedOneBitForBit) {
  const test::TempDir folder;
  const Recipe recipe = tiny(8, {{"train.validate_every", "0"}});
  TrainOptions straight, parts;
  straight.run = folder / "straight";
  ASSERT_EQ(train(recipe, straight), TrainEnd::finished);
  parts.run = folder / "parts";
  parts.resume = true;  // also at the first start: there is nothing to resume yet
  int steps = 0;
  parts.interrupted = [&] { return ++steps % 3 == 0; };
  TrainEnd end = TrainEnd::interrupted;
  int starts = 0;
  for (; end == TrainEnd::interrupted; ++starts) end = train(recipe, parts);
  EXPECT_EQ(end, TrainEnd::finished);
  EXPECT_EQ(starts, 3);
  EXPECT_EQ(losses(straight.run), losses(parts.run));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(bytes_of(straight.run / "checkpoints/step-8" / file), bytes_of(parts.run / "checkpoints/step-8" / file))
        << file;
}

TEST_F(Trainer, ResumeRefusesAnotherRecipeAndAllowsAnotherRhythm) {
  const test::TempDir folder;
  TrainOptions options;
  options.run = folder / "run";
  options.max_seconds = 1e-6;  // one step
  ASSERT_EQ(train(tiny(2), options), TrainEnd::out_of_time);
  options.resume = true;
  options.max_seconds.reset();
  test::expect_user_error([&] { train(tiny(2, {{"stage.learn.learning_rate", "0.5"}}), options); },
                          {"step-1", "stage.learn.learning_rate", "--out"});
  write_file_atomic(folder / "other.txt", std::string(4000, 'x'));
  Recipe other = tiny(2);
  other.data[0].paths = {(folder / "other.txt").string()};  // the same keys, but the file has changed
  test::expect_user_error([&] { train(other, options); }, {"data of source docs has changed", "--out"});
  EXPECT_EQ(train(tiny(2, {{"train.log_every", "1"}}), options), TrainEnd::finished);
  EXPECT_EQ(losses(options.run).size(), 2u);
}

TEST_F(Trainer, NumbersThatAreNotFiniteStopWithACheckpointBefore) {
  const test::TempDir folder;
  TrainOptions options;
  options.run = folder / "run";
  std::string last;
  options.print = [&](const std::string& line) { last = line; };
  const Recipe recipe = tiny(
      8, {{"stage.learn.learning_rate", "1e37"}, {"stage.learn.warmup", "0"}, {"train.quantize_experts", "false"}});
  ASSERT_EQ(train(recipe, options), TrainEnd::not_finite);
  EXPECT_NE(last.find("not finite; the first bad tensor is"), std::string::npos) << last;
  const auto checkpoint = latest_checkpoint(options.run);
  ASSERT_TRUE(checkpoint.has_value());
  const RunState state = read_run_state(*checkpoint);
  EXPECT_EQ(static_cast<std::int64_t>(losses(options.run).size()), state.step);
  EXPECT_NE(last.find(fmt::format("step {} ", state.step + 1)), std::string::npos) << last;
  for (const double loss : losses(options.run)) EXPECT_TRUE(std::isfinite(loss));
  const Checkpoint file(*checkpoint / "optimizer.safetensors");
  for (const auto& [name, view] : file.tensors()) {
    const auto* values = reinterpret_cast<const float*>(view.bytes.data());
    for (std::int64_t index = 0; index < view.elements(); ++index) ASSERT_TRUE(std::isfinite(values[index])) << name;
  }
}

// Exported experts, read back from the packed file, are the values that the forward pass used.
TEST_F(Trainer, PackedCheckpointHoldsExactlyWhatWasTrained) {
  const test::TempDir folder;
  TrainOptions options;
  options.run = folder / "run";
  ASSERT_EQ(train(tiny(3), options), TrainEnd::finished);
  Model model = load_model(options.run / "checkpoints/latest",
                           {.dtype = at::kFloat, .device = at::kCPU, .keep_experts_packed = false});
  const Checkpoint file(options.run / "checkpoints/latest/optimizer.safetensors");
  int compared = 0;
  for (const auto& [name, tensor] : named_tensors(model)) {
    if (!parameter_rule(name, tensor->sizes(), model.config).routed_expert) continue;
    const TensorView& view = file.at("master." + name);
    const Tensor master =
        at::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape, at::TensorOptions().dtype(at::kFloat))
            .clone();
    const Tensor rounded = ops::mxfp4_round(master);
    EXPECT_TRUE(at::equal(rounded, *tensor)) << name;
    EXPECT_FALSE(at::equal(master, *tensor)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 9);
}

TEST(Parameters, RulesOfEveryTensorOfTheTinyModel) {
  const Recipe recipe = tiny(1);
  const ModelConfig config = parse_config(recipe.model_config, "tiny");
  Model model = random_model(config, {.dtype = at::kFloat, .device = at::kCPU, .keep_experts_packed = false}, 1);
  std::map<std::string, ParameterRule> rules;
  for (const auto& [name, tensor] : named_tensors(model)) rules[name] = parameter_rule(name, tensor->sizes(), config);
  const auto rule = [&](const std::string& suffix) {
    for (const auto& [name, found] : rules)
      if (name.size() >= suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
        return found;
    ADD_FAILURE() << "no tensor " << suffix;
    return ParameterRule{};
  };
  EXPECT_EQ(rule("layers.0.self_attn.q_proj.weight").period, 16);
  EXPECT_EQ(rule("layers.0.self_attn.o_proj.weight").period, 32);
  EXPECT_EQ(rule("layers.0.self_attn.f_b_proj.weight").period, 16);
  EXPECT_EQ(rule("layers.0.self_attn.b_proj.weight").update, Update::adamw);
  EXPECT_FALSE(rule("layers.0.self_attn.dt_bias").decay);
  EXPECT_FALSE(rule("layers.0.self_attn.A_log").decay);
  EXPECT_TRUE(rule("layers.0.self_attn.q_conv1d.weight").decay);
  EXPECT_EQ(rule("layers.0.self_attn.q_conv1d.weight").update, Update::adamw);
  EXPECT_EQ(rule("layers.3.self_attn.q_b_proj.weight").period, 24);
  EXPECT_EQ(rule("layers.3.self_attn.kv_b_proj.weight").parts.size(), 2u);
  EXPECT_EQ(rule("layers.3.self_attn.q_a_layernorm.weight").update, Update::adamw);
  EXPECT_EQ(rule("layers.1.block_sparse_moe.gate.weight").update, Update::muon);
  EXPECT_EQ(rule("layers.1.block_sparse_moe.gate.e_score_correction_bias").update, Update::none);
  EXPECT_TRUE(rule("layers.1.block_sparse_moe.experts.*.w1.weight").routed_expert);
  EXPECT_FALSE(rule("layers.1.block_sparse_moe.shared_experts.gate_proj.weight").routed_expert);
  EXPECT_EQ(rule("embed_tokens.weight").update, Update::adamw);
  EXPECT_FALSE(rule("layers.1.mlp_res_proj.weight").decay);
  EXPECT_TRUE(rule("model.norm.weight").decay);
}

}  // namespace
}  // namespace k3::train
