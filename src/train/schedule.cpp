#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace k3::train {

double learning_rate(const StageRecipe& stage, std::int64_t step, double start) {
  const std::int64_t steps = stage.steps();
  const auto warm = static_cast<std::int64_t>(std::ceil(stage.warmup * static_cast<double>(steps)));
  if (step < warm)
    return start + (stage.learning_rate - start) * static_cast<double>(step + 1) / static_cast<double>(warm);
  const double part =
      static_cast<double>(step + 1 - warm) / static_cast<double>(std::max<std::int64_t>(1, steps - warm));
  return stage.final_learning_rate +
         (stage.learning_rate - stage.final_learning_rate) * 0.5 * (1.0 + std::cos(std::numbers::pi * part));
}

StepPlace place_of(const Recipe& recipe, std::int64_t step) {
  for (std::size_t stage = 0; stage < recipe.stages.size(); ++stage) {
    if (step < recipe.stages[stage].steps()) return {stage, step};
    step -= recipe.stages[stage].steps();
  }
  K3_CHECK(false, "a step lies beyond the last stage");
}

double learning_rate(const Recipe& recipe, std::int64_t step) {
  const StepPlace place = place_of(recipe, step);
  const double start = place.stage == 0 ? 0.0 : recipe.stages[place.stage - 1].final_learning_rate;
  return learning_rate(recipe.stages[place.stage], place.step, start);
}

}  // namespace k3::train
