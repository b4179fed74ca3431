// Routed experts of a checkpoint between plain floats and packed MXFP4 (checkpoint.md 2.2), shard by shard in a stream;
// every other tensor, the tokenizer and all other files are taken over unchanged, and config.json gains or loses its
// quantization_config.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/random_checkpoint.h"  // Progress

namespace k3 {

struct ConvertReport {
  std::int64_t matrices = 0;                    // expert matrices converted
  std::int64_t bytes_before = 0, bytes_after = 0;  // of all tensors
};

struct ConvertOptions {
  bool pack = true;  // false: MXFP4 to BF16, exact
  std::int64_t max_shard_bytes = std::int64_t{5} << 30;
  Progress progress;
};

ConvertReport convert_experts(const std::filesystem::path& in, const std::filesystem::path& out,
                              const ConvertOptions& options);

}  // namespace k3
