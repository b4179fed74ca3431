#include "ops/mla/mla.h"

#include <cmath>

#include "ops/precision.h"

namespace k3::ops {
namespace {

double score_scale(const MlaShape& shape) { return 1.0 / std::sqrt(static_cast<double>(shape.nope_dim + shape.rope_dim)); }

struct KeysValues {
  Tensor keys;    // [keys, heads, nope + rope]
  Tensor values;  // [keys, heads, value]
};

KeysValues expand(const Tensor& latent, const Tensor& kv_b, const MlaShape& shape) {
  const std::int64_t heads = kv_b.size(0), kv_lora = kv_b.size(2), keys = latent.size(0);
  const Tensor both = at::matmul(latent.narrow(1, 0, kv_lora), kv_b.reshape({-1, kv_lora}).t())
                          .view({keys, heads, shape.nope_dim + shape.value_dim});
  const Tensor shared = latent.narrow(1, kv_lora, shape.rope_dim).unsqueeze(1).expand({keys, heads, shape.rope_dim});
  return {at::cat({both.narrow(-1, 0, shape.nope_dim), shared}, -1), both.narrow(-1, shape.nope_dim, shape.value_dim)};
}

// Fused attention wants equal head sizes: the narrower of value and key is padded with zeros, which change nothing.
Tensor padded(const Tensor& x, std::int64_t dim) { return x.size(-1) == dim ? x : at::constant_pad_nd(x, {0, dim - x.size(-1)}); }

// q [tokens, heads, dim] against keys of the same row; query i sees the first keys - tokens + i + 1 keys.
Tensor attend(const Tensor& q, const KeysValues& kv, double scale) {
  const std::int64_t tokens = q.size(0), keys = kv.keys.size(0), value_dim = kv.values.size(-1);
  const std::int64_t dim = std::max(q.size(-1), value_dim);
  const auto batched = [&](const Tensor& x) { return padded(x, dim).transpose(0, 1).unsqueeze(0); };  // [1, heads, n, dim]
  std::optional<Tensor> mask;
  const bool square = tokens == keys;
  if (!square && tokens > 1) mask = at::ones({tokens, keys}, q.options().dtype(at::kBool)).tril(keys - tokens);
  const Tensor out = at::scaled_dot_product_attention(batched(q), batched(kv.keys), batched(kv.values), mask, 0.0,
                                                      /*is_causal=*/square && tokens > 1, scale);
  return out.squeeze(0).transpose(0, 1).narrow(-1, 0, value_dim);
}

}  // namespace

Tensor mla_packed(const Tensor& q, const Tensor& latent, const Tensor& kv_b, const MlaShape& shape, const RowPlan& plan) {
  const KeysValues kv = expand(latent, kv_b, shape);
  const double scale = score_scale(shape);
  if (q.is_cuda() && q.scalar_type() == at::kBFloat16) {
    std::vector<std::int32_t> starts(plan.starts.begin(), plan.starts.end());
    const Tensor cu_seqlens = at::tensor(starts, at::kInt).to(q.device());
    const std::int64_t dim = (std::max(q.size(-1), shape.value_dim) + 7) / 8 * 8;  // the kernel wants multiples of 8
    const auto result = at::_flash_attention_forward(padded(q, dim), padded(kv.keys, dim), padded(kv.values, dim), cu_seqlens, cu_seqlens,
                                                     plan.longest(), plan.longest(), 0.0, /*is_causal=*/true,
                                                     /*return_debug_mask=*/false, scale);
    return std::get<0>(result).narrow(-1, 0, shape.value_dim);
  }
  std::vector<Tensor> outs;
  for (std::int64_t row = 0; row < plan.rows(); ++row) {
    if (plan.length(row) == 0) continue;
    const auto cut = [&](const Tensor& x) { return x.narrow(0, plan.starts[row], plan.length(row)); };
    outs.push_back(attend(cut(q), {cut(kv.keys), cut(kv.values)}, scale));
  }
  return at::cat(outs);
}

Tensor mla_expanded(const Tensor& q, const Tensor& latent, const Tensor& kv_b, const MlaShape& shape) {
  return attend(q, expand(latent, kv_b, shape), score_scale(shape));
}

Tensor mla_absorbed(const Tensor& q, const Tensor& latent, const Tensor& kv_b, const MlaShape& shape) {
  const std::int64_t kv_lora = kv_b.size(2), tokens = q.size(0), keys = latent.size(0);
  const Tensor key_map = kv_b.narrow(1, 0, shape.nope_dim);                  // [heads, nope, kv_lora]
  const Tensor value_map = kv_b.narrow(1, shape.nope_dim, shape.value_dim);  // [heads, value, kv_lora]
  const Tensor by_head = q.transpose(0, 1);                                  // [heads, tokens, nope + rope]
  const Tensor absorbed = at::cat({at::matmul(by_head.narrow(-1, 0, shape.nope_dim), key_map), by_head.narrow(-1, shape.nope_dim, shape.rope_dim)}, -1);
  Tensor scores = wide(at::matmul(absorbed, latent.t())) * score_scale(shape);  // [heads, tokens, keys]
  if (tokens > 1) {
    const Tensor visible = at::ones({tokens, keys}, q.options().dtype(at::kBool)).tril(keys - tokens);
    scores = scores.masked_fill(~visible, -std::numeric_limits<double>::infinity());
  }
  const Tensor weights = at::softmax(scores, -1).to(q.scalar_type());
  const Tensor mixed = at::matmul(weights, latent.narrow(1, 0, kv_lora));          // [heads, tokens, kv_lora]
  return at::matmul(mixed, value_map.transpose(1, 2)).transpose(0, 1);              // [tokens, heads, value]
}

}  // namespace k3::ops
