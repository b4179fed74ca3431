// Written-out sums, differences and small products, digit by digit from the right, as a pupil writes them:
//   17 + 25: ones 7 + 5 = 12, write 2, carry 1; tens 1 + 2 + 1 = 4.
//   82 - 45: ones 2 - 5, borrow, 12 - 5 = 7; tens 8 - 4 - 1 = 3.
#pragma once

#include <cstdint>
#include <string>

#include "train/tasks/generator.h"

namespace k3::train {

std::string sum_steps(std::int64_t left, std::int64_t right);
std::string difference_steps(std::int64_t left, std::int64_t right);  // also for left < right
std::string product_steps(std::int64_t left, std::int64_t right);     // left one digit or 10 to 12

// Which split "left operation right" belongs to; 17 + 25 and 25 + 17 are the same.
Split split_of_calculation(char operation, std::int64_t left, std::int64_t right);
// True when neither the calculation nor what its steps and its check show is held out. Everything that training sees
// is; so a held-out sum stands nowhere in it, not even inside a word problem.
bool for_training(char operation, std::int64_t left, std::int64_t right);

std::string number_in_words(std::int64_t number);  // 0 to 999

}  // namespace k3::train
