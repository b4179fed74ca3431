// The tensor lists of both releases give the published totals; checkpoints are held against them, all differences at
// once.
#include "checkpoint/names.h"

#include <algorithm>
#include <fstream>

#include "checkpoint/mxfp4.h"
#include "checkpoint/published.h"
#include "support/files.h"

namespace k3::test {
namespace {

const ExpectedTensor& named(const std::vector<ExpectedTensor>& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const ExpectedTensor& tensor) { return tensor.name == name; });
  if (found == tensors.end()) throw std::runtime_error("no tensor " + name);
  return *found;
}

std::int64_t elements_of(const std::vector<ExpectedTensor>& tensors, Dtype dtype) {
  std::int64_t total = 0;
  for (const ExpectedTensor& tensor : tensors)
    if (tensor.dtype == dtype)
      total += TensorSpec{tensor.name, tensor.dtype, tensor.shape}.bytes() / dtype_bytes(dtype);
  return total;
}

TEST(Names, KimiK3Totals) {
  const ModelConfig config = kimi_k3_config();
  const std::vector<ExpectedTensor> tensors = expected_tensors(config);
  const TensorTotals totals = count_tensors(config, tensors);
  EXPECT_EQ(totals.tensors, 497'220);
  EXPECT_EQ(totals.parameters, 2'779'931'837'184);
  EXPECT_EQ(totals.bytes, 1'560'860'324'864);
  EXPECT_NEAR(static_cast<double>(totals.active_parameters), 104.19e9, 0.005e9);
  EXPECT_EQ(elements_of(tensors, Dtype::BF16), 57'179'884'544);
  EXPECT_EQ(elements_of(tensors, Dtype::F32), 11'122'432);
  const auto count = [&](Dtype dtype) {
    return std::count_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.dtype == dtype; });
  };
  EXPECT_EQ(count(Dtype::U8), 494'592);
  EXPECT_EQ(count(Dtype::BF16), 2'122);
  EXPECT_EQ(count(Dtype::F32), 506);
  std::int64_t vision = 0;
  for (const ExpectedTensor& tensor : tensors) vision += tensor.role == Role::vision ? tensor.parameters : 0;
  EXPECT_EQ(vision, 401'214'464 + 46'144'512);
}

TEST(Names, KimiLinearTotals) {
  const ModelConfig config = kimi_linear_48b_config();
  const TensorTotals totals = count_tensors(config, expected_tensors(config));
  EXPECT_EQ(totals.tensors, 20'493);
  EXPECT_EQ(totals.parameters, 49'122'681'728);
}

TEST(Names, KimiK3ShapesAsPublished) {
  const std::vector<ExpectedTensor> tensors = expected_tensors(kimi_k3_config());
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(named(tensors, "language_model.lm_head.weight").shape, (Shape{163840, 7168}));
  EXPECT_EQ(named(tensors, "language_model.model.output_attn_res_proj.weight").shape, (Shape{1, 7168}));
  EXPECT_EQ(named(tensors, "language_model.model.layers.0.self_attn.A_log").shape, (Shape{128}));
  EXPECT_EQ(named(tensors, "language_model.model.layers.0.self_attn.q_conv1d.weight").shape, (Shape{12288, 1, 4}));
  EXPECT_EQ(named(tensors, "language_model.model.layers.92.self_attn.kv_b_proj.weight").shape, (Shape{24576, 512}));
  EXPECT_EQ(named(tensors, "language_model.model.layers.92.block_sparse_moe.experts.895.w2.weight_scale").shape,
            (Shape{3584, 96}));
  EXPECT_EQ(named(tensors, "mm_projector.proj.2.weight").shape, (Shape{7168, 4096}));
  EXPECT_EQ(named(tensors, "language_model.model.layers.0.mlp.down_proj.weight").role, Role::dense_mlp);
}

TEST(Names, GoldenCheckpointsFit) {
  for (const char* name : {"k3-tiny", "k3-tiny-softplus", "kimi-linear-tiny"}) {
    const auto folder = data("golden") / name;
    EXPECT_NO_THROW(check_tensors(read_config(folder), Checkpoint(folder))) << name;
  }
}

TEST(Names, DenseLayersOfTheTransformersLibraryAreRenamed) {
  const TempDir folder;
  ModelConfig config = read_config(data("golden/kimi-linear-tiny"));
  ASSERT_FALSE(config.is_moe(0));
  const std::string dense = layer_prefix(config, 0) + "mlp.", theirs = layer_prefix(config, 0) + "block_sparse_moe.";
  std::vector<TensorSpec> specs;
  std::int64_t total = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    std::string name = tensor.name;
    if (name.starts_with(dense)) name.replace(0, dense.size(), theirs);
    specs.push_back({name, tensor.dtype, tensor.shape});
    total += specs.back().bytes();
  }
  CheckpointWriter writer(folder.path(), specs);
  writer.write(std::vector<std::byte>(static_cast<std::size_t>(total)));
  writer.finish();
  const Checkpoint checkpoint = open_checkpoint(config, folder.path());
  EXPECT_EQ(checkpoint.at(dense + "up_proj.weight").name, dense + "up_proj.weight");
}

TEST(Names, EveryDifferenceIsToldAtOnce) {
  const auto folder = data("golden/kimi-linear-tiny");
  ModelConfig config = read_config(folder);
  config.dense_dim = 100;
  config.attn_res_block = 2;
  config.kda.full_rank_gate = true;
  const Checkpoint checkpoint(folder);
  expect_user_error([&] { check_tensors(config, checkpoint); },
                    {"25 missing: ", "model.layers.0.self_attn.g_proj.weight",
                     "6 not read: ", "model.layers.0.self_attn.g_a_proj.weight", "3 of wrong shape: ",
                     "model.layers.0.mlp.gate_proj.weight [128, 64] (config: [100, 64])", "and 13 more"});
}

TEST(Names, WrongDtypeIsTold) {
  const TempDir folder;
  const ModelConfig config = read_config(data("golden/kimi-linear-tiny"));
  std::vector<TensorSpec> specs;
  for (const ExpectedTensor& tensor : expected_tensors(config))
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  specs[0].dtype = Dtype::I16;
  std::int64_t total = 0;
  for (const TensorSpec& spec : specs) total += spec.bytes();
  CheckpointWriter writer(folder.path(), specs);
  writer.write(std::vector<std::byte>(static_cast<std::size_t>(total)));
  writer.finish();
  expect_user_error([&] { check_tensors(config, Checkpoint(folder.path())); },
                    {"1 of wrong dtype: " + specs[0].name + " I16"});
}

TEST(Names, VisionTensorsMayStayUnread) {
  ModelConfig config = kimi_k3_config();
  const std::size_t all = expected_tensors(config).size();
  config.vision.reset();
  EXPECT_EQ(all - expected_tensors(config).size(), 168u);
}

TEST(Names, TiedEmbeddingsHaveNoHead) {
  ModelConfig config = kimi_linear_48b_config();
  const TensorTotals untied = count_tensors(config, expected_tensors(config));
  config.tied_embeddings = true;
  const TensorTotals tied = count_tensors(config, expected_tensors(config));
  EXPECT_EQ(untied.tensors - tied.tensors, 1);
  EXPECT_EQ(untied.active_parameters, tied.active_parameters);
}

}  // namespace
}  // namespace k3::test
