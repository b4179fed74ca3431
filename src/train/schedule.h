// Learning rate of a stage: linear warm-up over the first share of its steps, then a cosine down to the final rate at
// its last step.
//   warm-up  start + (peak - start) (step + 1) / warm      with start = 0, or the final rate of the stage before
//   cosine   final + (peak - final) (1 + cos(pi (step + 1 - warm) / (steps - warm))) / 2
#pragma once

#include <cstdint>

#include "train/recipe.h"

namespace k3::train {

double learning_rate(const StageRecipe& stage, std::int64_t step, double start);  // step counts from 0 within the stage

struct StepPlace {  // where a step of the whole run falls
  std::size_t stage = 0;
  std::int64_t step = 0;  // within the stage
};
StepPlace place_of(const Recipe& recipe, std::int64_t step);
double learning_rate(const Recipe& recipe, std::int64_t step);

}  // namespace k3::train
