#include "cli/version.h"

#include <fmt/format.h>

#include "base/cpu.h"
#include "base/tensor.h"
#include "build_facts.h"  // written by cmake/facts.cmake on every build: commit, torch, kernels compiled

namespace k3::cli {

std::string version_text() {
  std::string cuda = "none (torch is a CPU build)";
  if (at::hasCUDA()) {
    cuda = fmt::format("{} ({} device{})", build_facts::cuda, at::getNumGPUs(), at::getNumGPUs() == 1 ? "" : "s");
  } else if (*build_facts::cuda != '\0') {
    cuda = fmt::format("{} (no device found)", build_facts::cuda);
  }
  return fmt::format(
      "k3 {}\n"
      "commit     {}\n"
      "torch      {}\n"
      "CUDA       {}\n"
      "processor  {}\n",
      build_facts::version, build_facts::commit, build_facts::torch, cuda, cpu_features_text());
}

}  // namespace k3::cli
