// What `k3 --version` prints: version, commit, torch, CUDA, and the processor paths found.
#pragma once

#include <string>

namespace k3::cli {

std::string version_text();

}  // namespace k3::cli
