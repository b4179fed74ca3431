// The quantization_config object of the release (checkpoint.md 1.3) as JSON text: what a checkpoint with packed experts
// carries.
#pragma once

#include <string>

namespace k3 {

std::string quantization_config_text();

}  // namespace k3
