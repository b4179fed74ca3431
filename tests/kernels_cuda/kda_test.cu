// Tests of the CUDA KDA kernels, without torch: kda_test list | kda_test NAME... | kda_test all. Each case compares
// every output with an fp64 oracle. Built by nvcc it runs on the GPU; built by a C++ compiler with K3_CUDA_EMULATOR it
// runs the cases marked small on a CPU.
#include <cstdio>
#include <cstring>

#include "kernels/cuda/common/device.cuh"
#include "kernels_cuda/test.h"

int main(int argc, char** argv) {
  using namespace k3::cuda;
  std::vector<testing::Test> all;
  testing::add_scalar_tests(all);
  testing::add_chunk_tests(all);
  testing::add_step_tests(all);
  testing::add_prefill_tests(all);
  testing::add_extreme_tests(all);
  testing::add_recorded_tests(all);
  testing::add_repeat_tests(all);
  testing::add_agreement_tests(all);
  testing::add_large_tests(all);
  testing::add_large_training_tests(all);
#ifdef K3_CUDA_EMULATOR
  const bool emulated = true;
#else
  const bool emulated = false;
#endif
  if (argc < 2 || !std::strcmp(argv[1], "list")) {
    for (const auto& test : all)
      if (!emulated || test.small) std::printf("%s\n", test.name.c_str());
    return 0;
  }
  int failed = 0, ran = 0;
  for (const auto& test : all) {
    bool wanted = !std::strcmp(argv[1], "all") && (!emulated || test.small);
    for (int i = 1; i < argc; ++i) wanted = wanted || test.name == argv[i];
    if (!wanted) continue;
    ++ran;
#ifdef K3_CUDA_EMULATOR
    bool good = true;
    for (bool late : {false, true}) {
      emulator::options = {late, late};
      good = test.run() && good;
    }
#else
    const bool good = test.run();
#endif
    std::printf("%s %s\n", good ? "PASS" : "FAIL", test.name.c_str());
    std::fflush(stdout);
    failed += !good;
  }
  std::printf("%d ran, %d failed\n", ran, failed);
  return failed || !ran ? 1 : 0;
}
