// The story forms. Every frame is a story and a question in the pattern language of story.h with the steps that lead to
// the answer. Those of one step and of two steps are for training and for held-out numbers. The new forms are asked in
// evaluation only: training has neither their sentences nor their questions.
#pragma once

#include <span>
#include <string_view>

#include "train/tasks/story.h"

namespace k3::train {

enum class Scale {
  amounts,  // 2 to 300, mostly below 60
  groups,   // a 2 to 9, b 2 to 12
  years,    // 3 to 60
};

struct Frame {
  std::string_view kind;   // with the numbers it decides the split
  std::string_view steps;  // "a-b", "axb;s+c": s is the result of the first
  std::string_view story;
  std::string_view ask;
  std::string_view ideas;  // one a step, between semicolons
  std::string_view reply;
  Goods goods = Goods::any;
  Scale scale = Scale::amounts;
};

std::span<const Frame> change_frames();   // one owner gains, loses, gives, takes
std::span<const Frame> total_frames();    // together, products
std::span<const Frame> compare_frames();  // differences, more and fewer than, missing parts
std::span<const Frame> scene_frames();    // places, people, money, time, lengths
std::span<const Frame> two_step_frames();
std::span<const Frame> new_form_frames();

}  // namespace k3::train
