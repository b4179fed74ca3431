// The network: plain structs of tensors and free functions. The report's three axes are three files:
// sequence.cpp (KDA, MLA), depth.cpp (Attention Residuals), width.cpp (dense MLP, Stable LatentMoE). Source: checkpoint.md 3.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/tensor.h"
#include "checkpoint/config.h"
#include "model/batch.h"
#include "model/state.h"
#include "ops/experts/experts.h"
#include "ops/router/router.h"

namespace k3 {

struct KdaWeights {
  Tensor q_proj, k_proj, v_proj;        // [heads * head_dim, hidden]
  Tensor q_conv, k_conv, v_conv;        // [heads * head_dim, taps] fp32; the last tap meets the current token
  Tensor f_a_proj, f_b_proj;            // [head_dim, hidden], [heads * head_dim, head_dim]: decay logits
  Tensor dt_bias;                       // [heads * head_dim] fp32
  Tensor a_log;                         // [heads] fp32 (padding of the file cut off)
  Tensor b_proj;                        // [heads, hidden]: beta logits
  Tensor g_proj;                        // [heads * head_dim, hidden]   full-rank output gate, or undefined:
  Tensor g_a_proj, g_b_proj;            // [head_dim, hidden], [heads * head_dim, head_dim]
  Tensor o_norm;                        // [head_dim] fp32, shared by all heads
  Tensor o_proj;                        // [hidden, heads * head_dim]
};

struct MlaWeights {
  Tensor q_proj;                        // [heads * query_dim, hidden] or undefined:
  Tensor q_a_proj, q_a_norm, q_b_proj;  // [q_lora, hidden], [q_lora], [heads * query_dim, q_lora]
  Tensor kv_a_proj;                     // [kv_lora + rope_dim, hidden]
  Tensor kv_a_norm;                     // [kv_lora]
  Tensor kv_b_proj;                     // [heads * (nope_dim + value_dim), kv_lora]; per head keys, then values
  Tensor g_proj;                        // [heads * value_dim, hidden] or undefined: output gate
  Tensor o_proj;                        // [hidden, heads * value_dim]
};

struct MlpWeights {
  Tensor gate_proj, up_proj;  // [width, hidden]
  Tensor down_proj;           // [hidden, width]
};

struct MoeWeights {
  Tensor router;              // [experts, hidden]
  Tensor router_bias;         // [experts] fp32; selection only
  Tensor latent_down;         // [latent, hidden] or undefined
  Tensor latent_norm;         // [latent] or undefined
  Tensor latent_up;           // [hidden, latent] or undefined
  ops::ExpertWeights experts;
  std::optional<MlpWeights> shared;
};

struct DepthWeights {  // one Attention Residuals site
  Tensor norm;         // [hidden]
  Tensor proj;         // [hidden]  the pseudo-query
};

struct Layer {
  Tensor input_norm, post_attention_norm;  // [hidden]
  DepthWeights attention_mix, mlp_mix;     // undefined without AttnRes
  std::variant<KdaWeights, MlaWeights> attention;
  std::variant<MlpWeights, MoeWeights> mlp;
};

struct Model {
  ModelConfig config;
  Tensor embedding;         // [vocab, hidden]
  std::vector<Layer> layers;
  Tensor norm;              // [hidden]
  DepthWeights output_mix;  // undefined without AttnRes
  Tensor head;              // [vocab, hidden]; the embedding itself when tied

  at::Device device() const { return embedding.device(); }
  at::ScalarType dtype() const { return embedding.scalar_type(); }
};

// What a caller may look at while the model runs (tests, k3 logits --states, Quantile Balancing). Empty members cost nothing.
struct Observer {
  std::function<void(std::int64_t layer, const Tensor& running_sum)> after_layer;               // [tokens, hidden]
  std::function<void(std::int64_t layer, const ops::Routing& routing)> after_router;
  std::function<std::optional<Tensor>(std::int64_t layer)> forced_experts;                      // int64 [tokens, k]
};

// -> hidden [tokens, hidden] after the output mix and the final norm: the input of the head. With a pool, row r continues and
// updates slot plan.slots[r]; without one every row starts from nothing. Differentiable when no pool is given.
Tensor forward(const Model& model, const ForwardBatch& batch, StatePool* pool = nullptr, const Observer* observer = nullptr);
Tensor logits(const Model& model, const Tensor& hidden);  // [rows, hidden] -> [rows, vocab] in at least fp32
std::vector<std::int64_t> last_tokens(const RowPlan& plan);  // index of the last token of each row

struct LoadOptions {
  at::ScalarType dtype = at::kBFloat16;   // kFloat, kDouble, kBFloat16; tensors that the file holds in fp32 islands stay fp32 (fp64)
  at::Device device = at::kCPU;
  bool keep_experts_packed = true;        // false: MXFP4 experts are widened to dtype (training, fp64 checks)
};
Model load_model(const std::filesystem::path& folder, const LoadOptions& options);
Model random_model(const ModelConfig& config, const LoadOptions& options, std::uint64_t seed);  // training.md 1.8

// Every tensor with its published name, in file order. Experts appear once a layer as stacks [experts, ...] under the name
// "...experts.*.w1.weight"; save_model cuts them into the published per-expert tensors.
std::vector<std::pair<std::string, Tensor*>> named_tensors(Model& model);

// Writes config.json and safetensors in the published layout and dtypes (experts packed when config.packed_experts). Atomic.
void save_model(const Model& model, const std::filesystem::path& folder);

}  // namespace k3
