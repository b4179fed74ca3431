// Every tensor of an architecture: its name in the file, shape and stored dtype, derived from the config (checkpoint.md
// 2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

namespace k3 {

enum class Role {
  embedding,
  attention,
  router,
  routed_expert,
  shared_expert,
  dense_mlp,
  latent,
  norm,
  depth,
  vision,
  head
};

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Dtype dtype = Dtype::BF16;         // as published; F32, F16 and F64 files are read as well, MXFP4 only where packed
  Role role = Role::attention;
  std::int64_t parameters = 0;       // packed codes count two per byte, scales 0
  bool any_float = true;             // false: dtype must match exactly (packed codes and scales)
  bool a_log = false;                // A_log: [n >= heads], or [1, 1, heads, 1]
};

// What an architecture amounts to, by its tensor list.
struct TensorTotals {
  std::int64_t tensors = 0, parameters = 0, bytes = 0;
  std::int64_t active_parameters =
      0;  // read for one text token: everything but the embedding table, vision and the experts not chosen
};
TensorTotals count_tensors(const ModelConfig& config, const std::vector<ExpectedTensor>& tensors);

std::string text_prefix(const ModelConfig& config);                        // "language_model." or ""
std::string layer_prefix(const ModelConfig& config, std::int64_t layer);   // "language_model.model.layers.3."
std::vector<ExpectedTensor> expected_tensors(
    const ModelConfig& config);  // in file order: layer by layer, then model level, then vision

// All that is wrong, by name, at once: missing, unread, wrong-shaped and wrong-typed tensors. Throws one UserError when
// anything is. Vision tensors may be present when the config has no vision part. Unpacked tensors may be F64, F32, F16
// or BF16.
void check_tensors(const ModelConfig& config, const Checkpoint& checkpoint);

// The weights of a model folder, under their published names also when the transformers library wrote them; checked.
Checkpoint open_checkpoint(const ModelConfig& config, const std::filesystem::path& folder);

}  // namespace k3
