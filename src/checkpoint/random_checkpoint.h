// A random checkpoint of any size in the published layout, streamed: what is in memory at once is one buffer of 64 MiB.
// Values follow training.md 1.8 (normal with initializer_range, norms 1, A_log 0 or log U(1, 16), dt_bias from
// log-uniform dt, convolutions uniform) except that pseudo-queries of AttnRes and the router bias are small random
// numbers instead of zeros, so that a test of this checkpoint exercises them. The same seed gives the same bytes,
// tensor by tensor, on any number of processors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/names.h"

namespace k3 {

using Progress = std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)>;

struct RandomCheckpointOptions {
  std::uint64_t seed = 0;
  std::int64_t max_shard_bytes = std::int64_t{5} << 30;
  Progress progress;  // may be empty
};

// Makes the folder; UserError when it exists already.
void write_random_checkpoint(const ModelConfig& config, const std::filesystem::path& folder,
                             const RandomCheckpointOptions& options);

// Bytes [first_byte, first_byte + out.size()) of one tensor; first_byte must be a multiple of 64.
void fill_random(const ModelConfig& config, const ExpectedTensor& tensor, std::uint64_t seed, std::int64_t first_byte,
                 std::span<std::byte> out);

// A config text with "key=value" settings applied: keys as in config.json, dotted when nested; in a kimi_k3 file plain
// keys mean text_config. What depends on them follows unless it is set too: layer lists (num_hidden_layers), token ids
// (vocab_size), num_key_value_heads (num_attention_heads), text_hidden_size of the vision part (hidden_size).
std::string with_settings(const std::string& config_text, const std::vector<std::string>& settings);

}  // namespace k3
