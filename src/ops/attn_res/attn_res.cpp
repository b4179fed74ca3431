#include "ops/attn_res/attn_res.h"

#include "ops/attn_res/attn_res_cuda.h"
#include "ops/precision.h"

namespace k3::ops {

Tensor attn_res_mix(const std::vector<Tensor>& sources, const Tensor& norm, const Tensor& proj, double eps) {
  const at::ScalarType type = wide_type(sources.back());
  const Tensor query = norm.to(type) * proj.to(type);  // [hidden]
  if (attn_res_cuda_takes(sources)) return attn_res_cuda(sources, query, eps);
  std::vector<Tensor> values, scores;
  for (const Tensor& source : sources) {
    const Tensor value = source.to(type);
    const Tensor inverse_rms = at::rsqrt(value.square().mean(-1) + eps);
    values.push_back(value);
    scores.push_back(at::mv(value, query) * inverse_rms);
  }
  const Tensor weights = at::softmax(at::stack(scores, -1), -1);  // [tokens, sources]
  Tensor mixed = weights.select(1, 0).unsqueeze(1) * values[0];
  for (std::size_t source = 1; source < values.size(); ++source)
    mixed = mixed + weights.select(1, static_cast<std::int64_t>(source)).unsqueeze(1) * values[source];
  return mixed.to(sources.back().scalar_type());
}

}  // namespace k3::ops
