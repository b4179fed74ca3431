// Opening the weights of a model: the transformers library writes a dense MLP of kimi_linear under the name that the published files keep
// for experts (block_sparse_moe); it is renamed, then every tensor is checked.
#include "checkpoint/names.h"

namespace k3 {

Checkpoint open_checkpoint(const ModelConfig& config, const std::filesystem::path& folder) {
  Checkpoint checkpoint(folder);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.is_moe(layer)) continue;
    const std::string prefix = layer_prefix(config, layer);
    for (const char* matrix : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
      const std::string published = prefix + "mlp." + matrix, theirs = prefix + "block_sparse_moe." + matrix;
      if (checkpoint.find(published) == nullptr && checkpoint.find(theirs) != nullptr) checkpoint.rename(theirs, published);
    }
  }
  check_tensors(config, checkpoint);
  return checkpoint;
}

}  // namespace k3
