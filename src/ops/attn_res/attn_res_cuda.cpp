#include "ops/attn_res/attn_res_cuda.h"

#include "base/autograd_function.h"
#include "base/error.h"

#ifdef K3_WITH_CUDA

#include "kernels/cuda/attn_res/attn_res.h"
#include "ops/cuda_call.h"

namespace k3::ops {
namespace {

namespace kernel = k3::cuda::attn_res;

kernel::Mix describe(at::TensorList sources, const Tensor& query, double eps) {
  kernel::Mix mix;
  mix.tokens = sources[0].size(0);
  mix.hidden = static_cast<int>(sources[0].size(1));
  mix.sources = static_cast<int>(sources.size());
  mix.bf16 = is_bf16(sources[0]);
  for (int i = 0; i < mix.sources; ++i) mix.values[i] = sources[i].const_data_ptr();
  mix.query = query.const_data_ptr<float>();
  mix.eps = static_cast<float>(eps);
  return mix;
}

struct MixFunction : torch::autograd::Function<MixFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, at::TensorList sources, const Tensor& query, double eps) {
    const c10::cuda::CUDAGuard guard(query.device());
    std::vector<Tensor> kept = sources.vec();
    for (Tensor& source : kept) source = source.contiguous();
    Tensor out = at::empty_like(kept[0]);
    C10_CUDA_CHECK(kernel::forward(describe(kept, query, eps), out.mutable_data_ptr(), current_stream()));
    context->saved_data["eps"] = eps;
    kept.push_back(query);
    context->save_for_backward(kept);
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    auto sources = context->get_saved_variables();
    const Tensor query = sources.back();
    sources.pop_back();
    const c10::cuda::CUDAGuard guard(query.device());
    const kernel::Mix mix = describe(sources, query, context->saved_data["eps"].toDouble());
    const Tensor d_out = grads[0].contiguous();
    Tensor parts = at::empty({kernel::backward_parts(mix), mix.hidden}, query.options());
    torch::autograd::variable_list result;
    void* pointers[kernel::kMaxSources] = {};
    for (int i = 0; i < mix.sources; ++i) {
      result.push_back(at::empty_like(sources[i]));
      pointers[i] = result[i].mutable_data_ptr();
    }
    C10_CUDA_CHECK(kernel::backward(mix, d_out.const_data_ptr(), pointers, parts.mutable_data_ptr<float>(), current_stream()));
    result.push_back(parts.sum(0));
    result.push_back(Tensor());
    return result;
  }
};

}  // namespace

bool attn_res_cuda_takes(const std::vector<Tensor>& sources) {
  const Tensor& first = sources.front();
  return first.is_cuda() && kernel_dtype(first) && first.size(0) > 0 && first.size(1) % 4 == 0 && first.size(1) <= 12288 &&
         sources.size() >= 2 && sources.size() <= kernel::kMaxSources;
}

Tensor attn_res_cuda(const std::vector<Tensor>& sources, const Tensor& query, double eps) {
  return MixFunction::apply(at::TensorList(sources), query.contiguous(), eps);
}

}  // namespace k3::ops

#else

namespace k3::ops {

bool attn_res_cuda_takes(const std::vector<Tensor>&) { return false; }
Tensor attn_res_cuda(const std::vector<Tensor>&, const Tensor&, double) { K3_CHECK(false, "this build has no CUDA kernels"); }

}  // namespace k3::ops

#endif
