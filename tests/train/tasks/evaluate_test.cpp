// Evaluation of a small random model: counts, bytes, the loss against the trainer's own, the same answers for any
// number of slots, bad names.
#include "train/tasks/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "model/batch.h"
#include "support/files.h"
#include "train/loss.h"
#include "train/recipe.h"

namespace k3::train {
namespace {

Model small_model() {
  const Recipe recipe = read_recipe(std::filesystem::path(K3_SOURCE_DIR) / "recipes" / "tiny.toml");
  LoadOptions options;
  options.dtype = at::kFloat;
  return random_model(parse_config(recipe.model_config, "tiny.toml"), options, 1);
}

Tokenizer byte_tokenizer() { return Tokenizer::load(test::data("train/bytes")); }

TEST(Evaluate, LossIsTheTrainersLoss) {
  const Model model = small_model();
  const Tokenizer tokenizer = byte_tokenizer();
  const test::TempDir folder;
  std::string text;
  for (int at = 0; at < 25; ++at) text += "The old king walked to the sea. ";
  write_file_atomic(folder / "text.txt", text);
  const LossResult result = evaluate_loss(model, tokenizer, folder / "text.txt", {.length = 256, .windows = 0});
  ASSERT_EQ(text.size(), 800u);
  EXPECT_EQ(result.windows, 4);  // 256 + 256 + 256 + 31 targets: the first token of the text is never one
  EXPECT_EQ(result.tokens, 799);
  EXPECT_EQ(result.bytes, 799);
  EXPECT_NEAR(result.bits_per_byte, result.nats / std::log(2.0), 1e-9);

  const at::NoGradGuard no_grad;
  double nats = 0;
  for (std::size_t start = 0; start + 1 < text.size(); start += 256) {
    std::vector<std::int64_t> ids, targets;
    for (std::size_t at = start; at + 1 < text.size() && at < start + 256; ++at) {
      ids.push_back(tokenizer.encode(text.substr(at, 1))[0]);
      targets.push_back(tokenizer.encode(text.substr(at + 1, 1))[0]);
    }
    const std::vector<std::vector<std::int64_t>> rows = {ids};
    const Tensor hidden = forward(model, pack_documents(rows, at::kCPU));
    nats += cross_entropy(hidden, model.head, at::tensor(targets, at::kLong), at::ones({hidden.size(0)}), 1.0)
                .item<double>();
  }
  EXPECT_NEAR(result.nats, nats / 799, 1e-4);
}

TEST(Evaluate, WindowsAreSpreadOverTheFile) {
  const test::TempDir folder;
  write_file_atomic(folder / "text.txt", std::string(2049, 'a'));
  const LossResult result =
      evaluate_loss(small_model(), byte_tokenizer(), folder / "text.txt", {.length = 256, .windows = 3});
  EXPECT_EQ(result.windows, 3);
  EXPECT_EQ(result.tokens, 768);
  write_file_atomic(folder / "empty.txt", "");
  test::expect_user_error([&] { evaluate_loss(small_model(), byte_tokenizer(), folder / "empty.txt", {}); },
                          {"empty.txt", "no text"});
}

TEST(Evaluate, AnUntrainedModelIsWrongWhateverTheSlots) {
  Model model = small_model();
  model.config.max_context = 2048;
  TaskOptions options;
  options.task = "arithmetic";
  options.count = 3;
  options.slots = 2;
  const TaskResult two = evaluate_task(model, byte_tokenizer(), options);
  options.slots = 1;
  const TaskResult one = evaluate_task(model, byte_tokenizer(), options);
  EXPECT_EQ(two.count, 3);
  EXPECT_EQ(two.right, 0);
  ASSERT_EQ(two.misses.size(), 3u);
  for (std::size_t at = 0; at < 3; ++at) {
    EXPECT_EQ(one.misses[at].question, two.misses[at].question);
    EXPECT_EQ(one.misses[at].got, two.misses[at].got);
  }
  std::int64_t grouped = 0;
  for (const TaskGroup& group : two.groups) grouped += group.count;
  EXPECT_EQ(grouped, 3);
}

TEST(Evaluate, BadNamesAreRefused) {
  const Model model = small_model();
  test::expect_user_error([&] { evaluate_task(model, byte_tokenizer(), {.task = "poems"}); }, {"poems", "arithmetic"});
  test::expect_user_error([&] { evaluate_task(model, byte_tokenizer(), {.task = "tools", .effort = "medium"}); },
                          {"medium", "high"});
  test::expect_user_error([&] { evaluate_task(model, byte_tokenizer(), {.task = "passkey", .length = 300}); },
                          {"passkey", "fit"});
}

}  // namespace
}  // namespace k3::train
