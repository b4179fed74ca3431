// One named test of the program kda_test.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace k3::cuda::testing {

struct Test {
  std::string name;
  bool small;  // quick enough for the emulator
  std::function<bool()> run;
};
void add_scalar_tests(std::vector<Test>& all);
void add_chunk_tests(std::vector<Test>& all);
void add_step_tests(std::vector<Test>& all);
void add_prefill_tests(std::vector<Test>& all);
void add_extreme_tests(std::vector<Test>& all);
void add_recorded_tests(std::vector<Test>& all);
void add_repeat_tests(std::vector<Test>& all);
void add_agreement_tests(std::vector<Test>& all);
void add_large_tests(std::vector<Test>& all);
void add_large_training_tests(std::vector<Test>& all);

}  // namespace k3::cuda::testing
