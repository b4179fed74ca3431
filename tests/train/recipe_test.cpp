// Recipes: every key is known or named in the error; cases of bad recipes are in tests/data/train/recipe_errors.txt.
#include "train/recipe.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/files.h"
#include "support/files.h"
#include "train/schedule.h"

namespace k3::train {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(K3_SOURCE_DIR) / "recipes/tiny.toml";

TEST(Recipe, TinyIsRead) {
  const Recipe recipe = read_recipe(kTiny);
  ASSERT_EQ(recipe.stages.size(), 1u);
  EXPECT_EQ(recipe.stages[0].name, "learn");
  EXPECT_EQ(recipe.stages[0].steps(), 40);
  EXPECT_EQ(recipe.stages[0].micro_batches(), 2);
  ASSERT_EQ(recipe.stages[0].mixture.size(), 2u);
  EXPECT_EQ(recipe.stages[0].mixture[0].first, "docs");
  EXPECT_DOUBLE_EQ(recipe.stages[0].mixture[0].second, 0.7);
  EXPECT_TRUE(recipe.quantize_experts);
  EXPECT_TRUE(recipe.optimizer.quantize_experts);
  EXPECT_TRUE(recipe.validation.at(0).heldout);
}

TEST(Recipe, EveryRecipeInTheTreeIsRead) {
  for (const auto& entry : std::filesystem::directory_iterator(kTiny.parent_path())) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_NO_THROW(read_recipe(entry.path())) << entry.path();
  }
}

TEST(Recipe, SettingsReplaceAndAdd) {
  const Recipe recipe =
      read_recipe(kTiny, {parse_setting("stage.learn.tokens=1e5"), parse_setting("optimizer.momentum=0.9"),
                          parse_setting("stage.learn.mixture.sums=0")});
  EXPECT_EQ(recipe.stages[0].tokens, 100000);
  EXPECT_DOUBLE_EQ(recipe.optimizer.momentum, 0.9);
  EXPECT_EQ(recipe.stages[0].mixture.size(), 1u);
  test::expect_user_error([] { parse_setting("tokens"); }, {"key=value"});
}

// A case: "## setting" lines to apply to tiny.toml, then "> " lines with fragments that the error must contain.
TEST(Recipe, BadOnesAreRefusedByFileAndKey) {
  std::istringstream cases(read_file(test::data("train/recipe_errors.txt")));
  std::string line;
  std::vector<Setting> settings;
  int count = 0;
  while (std::getline(cases, line)) {
    if (line.rfind("## ", 0) == 0) {
      settings.push_back(parse_setting(line.substr(3)));
    } else if (line.rfind("> ", 0) == 0) {
      SCOPED_TRACE(line);
      test::expect_user_error([&] { read_recipe(kTiny, settings); }, {"tiny.toml", line.substr(2)});
      settings.clear();
      ++count;
    }
  }
  EXPECT_GT(count, 8);
}

TEST(Recipe, DamagedFilesAreRefused) {
  const test::TempDir folder;
  write_file_atomic(folder / "twice.toml", "seed = 1\ntokenizer = \"x\"\nseed = 2\n");
  write_file_atomic(folder / "quotes.toml", "seed = 1\ntokenizer = \"x # y\"\n");
  write_file_atomic(folder / "empty.toml", "");
  test::expect_user_error([&] { read_recipe(folder / "twice.toml"); }, {"twice.toml", "seed", "twice"});
  test::expect_user_error([&] { read_recipe(folder / "quotes.toml"); }, {"quotes.toml line 2", "#"});
  test::expect_user_error([&] { read_recipe(folder / "empty.toml"); }, {"empty.toml", "tokenizer"});
  test::expect_user_error([&] { read_recipe(folder / "none.toml"); }, {"none.toml"});
}

TEST(Schedule, WarmUpThenCosineAcrossStages) {
  Recipe recipe;
  StageRecipe first{.name = "a",
                    .tokens = 100,
                    .batch_tokens = 1,
                    .micro_batch_tokens = 1,
                    .context = 1,
                    .learning_rate = 1.0,
                    .final_learning_rate = 0.1,
                    .warmup = 0.1,
                    .mixture = {}};
  StageRecipe second = first;
  second.learning_rate = 0.5;
  second.final_learning_rate = 0.0;
  recipe.stages = {first, second};
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 9), 1.0);
  EXPECT_NEAR(learning_rate(recipe, 54), 0.55, 1e-12);  // half of the cosine
  EXPECT_NEAR(learning_rate(recipe, 99), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(recipe, 100), 0.14, 1e-12);  // the second stage warms up from the first one's end
  EXPECT_NEAR(learning_rate(recipe, 109), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(recipe, 199), 0.0, 1e-12);
}

}  // namespace
}  // namespace k3::train
