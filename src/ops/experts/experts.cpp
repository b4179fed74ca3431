// Rows are sorted by expert once; then three grouped products. Three ways to do a grouped product, chosen by what the weights are:
// packed codes (decoded row by row on the CPU, expert by expert on a GPU), bf16 on a GPU (one grouped kernel), anything else (a product per expert).
#include "ops/experts/experts.h"

#include "base/autograd_function.h"
#include "base/error.h"
#include "kernels/cpu/mxfp4_matmul.h"
#include "ops/mxfp4/mxfp4.h"

namespace k3::ops {
namespace {

// Rows of `x` in the order of `order`; the backward is the gather by the inverse permutation instead of a scatter with atomics.
struct PermuteRows : torch::autograd::Function<PermuteRows> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& order, const Tensor& inverse) {
    context->save_for_backward({inverse});
    return x.index_select(0, order);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    return {grads[0].index_select(0, context->get_saved_variables()[0]), Tensor(), Tensor()};
  }
};

struct Groups {
  Tensor order, inverse;             // int64 [tokens * k]: sorted place -> pair, pair -> sorted place
  Tensor ends;                       // int32 [experts]: end of each expert's rows, on the device
  std::vector<std::int64_t> starts;  // host copy [experts + 1]; filled only where a loop over experts needs it
};

Groups group_by_expert(const Tensor& chosen, std::int64_t experts, bool on_host) {
  Groups groups;
  const Tensor flat = chosen.reshape({-1});
  groups.order = at::argsort(flat, /*stable=*/true);
  groups.inverse = at::empty_like(groups.order);
  groups.inverse.scatter_(0, groups.order, at::arange(flat.size(0), flat.options()));
  const Tensor counts = at::zeros({experts}, flat.options()).scatter_add_(0, flat, at::ones_like(flat));
  groups.ends = counts.cumsum(0).to(at::kInt);
  if (on_host) {
    const Tensor host = groups.ends.cpu();
    groups.starts.assign(1, 0);
    for (std::int64_t expert = 0; expert < experts; ++expert) groups.starts.push_back(host.const_data_ptr<std::int32_t>()[expert]);
  }
  return groups;
}

Tensor packed_product(const Tensor& x, const ExpertMatrix& matrix, std::int64_t expert) {
  const Tensor codes = matrix.codes[expert], scales = matrix.scales[expert];
  if (x.is_cuda() || x.scalar_type() == at::kDouble) return at::matmul(x, mxfp4_dequantize(codes, scales, x.scalar_type()).t());
  const Tensor input = x.to(at::kFloat).contiguous();
  const Tensor output = at::empty({x.size(0), matrix.out_dim()}, input.options());
  const Tensor whole_codes = codes.contiguous(), whole_scales = scales.contiguous();
  const std::int64_t in_dim = matrix.in_dim(), out_dim = matrix.out_dim();
  kernels::mxfp4_matmul(input.const_data_ptr<float>(), whole_codes.const_data_ptr<std::uint8_t>(), whole_scales.const_data_ptr<std::uint8_t>(),
                        output.mutable_data_ptr<float>(), x.size(0), out_dim, in_dim);
  return output.to(x.scalar_type());
}

// x [pairs, in], sorted by expert -> [pairs, out].
Tensor grouped_product(const Tensor& x, const ExpertMatrix& matrix, const Groups& groups) {
  if (groups.starts.empty()) return at::_grouped_mm(x, matrix.weight.transpose(-1, -2), groups.ends);
  const std::vector<Tensor> weights = matrix.packed() ? std::vector<Tensor>() : matrix.weight.unbind(0);
  std::vector<Tensor> outs;
  for (std::int64_t expert = 0; expert < matrix.experts(); ++expert) {
    const std::int64_t start = groups.starts[expert], rows = groups.starts[expert + 1] - start;
    if (rows == 0) continue;
    const Tensor input = x.narrow(0, start, rows);
    outs.push_back(matrix.packed() ? packed_product(input, matrix, expert) : at::matmul(input, weights[expert].t()));
  }
  return outs.empty() ? at::zeros({0, matrix.out_dim()}, x.options()) : at::cat(outs);
}

}  // namespace

Tensor experts(const Tensor& z, const Routing& routing, const ExpertWeights& weights, const Glu& options) {
  const std::int64_t tokens = z.size(0), k = routing.experts.size(1), latent = z.size(1);
  const bool one_kernel = z.is_cuda() && z.scalar_type() == at::kBFloat16 && !weights.w1.packed();
  const Groups groups = group_by_expert(routing.experts, weights.w1.experts(), !one_kernel);
  const Tensor pairs = z.unsqueeze(1).expand({tokens, k, latent}).reshape({tokens * k, latent});
  const Tensor x = PermuteRows::apply(pairs, groups.order, groups.inverse);
  const Tensor hidden = glu(grouped_product(x, weights.w1, groups), grouped_product(x, weights.w3, groups), options);
  const Tensor y = PermuteRows::apply(grouped_product(hidden, weights.w2, groups), groups.inverse, groups.order);
  const Tensor weighted = y.view({tokens, k, latent}).to(routing.weights.scalar_type()) * routing.weights.unsqueeze(-1);
  return weighted.sum(1).to(z.scalar_type());
}

}  // namespace k3::ops
