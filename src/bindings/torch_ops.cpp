// torch.ops.k3: every operator of src/ops callable from Python, with autograd (tests/interop/test_torch_ops.py shows the use).
//   torch.ops.load_library("build/release/libk3_torch_ops.so"); torch.ops.k3.kda(q, k, v, g, beta, [0, 7, 19], None, True, "chunk")
// Rows are given as cu_seqlens, a list of ints [rows + 1]. Shapes and precision: the header of each operator.
#include <torch/library.h>

#include "base/error.h"
#include "ops/attn_res/attn_res.h"
#include "ops/experts/experts.h"
#include "ops/glu/glu.h"
#include "ops/kda/kda.h"
#include "ops/kda/kda_step.h"
#include "ops/mla/mla.h"
#include "ops/mxfp4/mxfp4.h"
#include "ops/norm/norm.h"
#include "ops/router/router.h"
#include "ops/short_conv/short_conv.h"

namespace {

using at::Tensor;
using namespace k3;

RowPlan rows(at::IntArrayRef cu_seqlens) {
  RowPlan plan;
  plan.starts = cu_seqlens.vec();
  TORCH_CHECK(!plan.starts.empty() && plan.starts.front() == 0, "cu_seqlens must start with 0");
  TORCH_CHECK(std::is_sorted(plan.starts.begin(), plan.starts.end()), "cu_seqlens must not fall");
  plan.contexts.assign(plan.starts.size() - 1, 0);
  return plan;
}

ops::KdaForm kda_form(std::string_view name) {
  if (name == "recurrent") return ops::KdaForm::recurrent;
  if (name == "chunk") return ops::KdaForm::chunk;
  TORCH_CHECK(name == "automatic", "form must be recurrent, chunk or automatic");
  return ops::KdaForm::automatic;
}

std::tuple<Tensor, Tensor> short_conv(const Tensor& u, const Tensor& taps, at::IntArrayRef cu_seqlens, const std::optional<Tensor>& window) {
  const ops::ShortConv result = ops::short_conv(u, taps, rows(cu_seqlens), window.value_or(Tensor()));
  return {result.out, result.window.defined() ? result.window : at::empty({0}, u.options())};
}

std::tuple<Tensor, Tensor> kda(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta,
                               at::IntArrayRef cu_seqlens, const std::optional<Tensor>& state, bool bounded, std::string_view form) {
  const ops::KdaResult result = ops::kda({q, k, v, g, beta, bounded}, rows(cu_seqlens), state.value_or(Tensor()), kda_form(form));
  return {result.out, result.state};
}

Tensor kda_step(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& z, const Tensor& b, const Tensor& gate, const Tensor& taps,
                const Tensor& a_log, const Tensor& dt_bias, const Tensor& norm_weight, std::optional<double> lower_bound, double norm_eps,
                const Tensor& state, const Tensor& window, at::IntArrayRef cu_seqlens, at::IntArrayRef slots) {
  RowPlan plan = rows(cu_seqlens);
  plan.slots = slots.vec();
  const ops::KdaStep step{q, k, v, z, b, gate, taps, a_log, dt_bias, norm_weight, lower_bound, norm_eps, state, window};
  TORCH_CHECK(ops::kda_step_takes(step, plan), "kda_step: needs CUDA tensors in bf16 or fp32 (state fp32), dim 32, 64 or 128, rows of up to ",
              ops::kKdaStepTokens, " tokens (any length: bf16, dim 128, bounded gate, Hopper) and no gradients");
  return ops::kda_step(step, plan);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> route(const Tensor& h, const Tensor& weight, const Tensor& bias, std::int64_t k, bool renormalize,
                                                 double scaling_factor) {
  const ops::Routing routing = ops::route(h, weight, bias, k, renormalize, scaling_factor);
  return {routing.experts, routing.weights, routing.scores, routing.cutoff};
}

Tensor experts(const Tensor& z, const Tensor& chosen, const Tensor& weights, const Tensor& w1, const Tensor& w3, const Tensor& w2, bool situ,
               double beta, double linear_beta) {
  ops::Routing routing;
  routing.experts = chosen;
  routing.weights = weights;
  const auto plain = [](const Tensor& weight) { return ops::ExpertMatrix{weight, {}, {}}; };
  return ops::experts(z, routing, {plain(w1), plain(w3), plain(w2)}, {situ, beta, linear_beta});
}

}  // namespace

TORCH_LIBRARY(k3, m) {
  m.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor", &ops::rms_norm);
  m.def("l2_norm(Tensor x, float eps) -> Tensor", &ops::l2_norm);
  m.def("gated_rms_norm(Tensor o, Tensor gate, Tensor weight, float eps) -> Tensor", &ops::gated_rms_norm);
  m.def("glu(Tensor gate, Tensor up, bool situ, float beta, float linear_beta) -> Tensor",
        [](const Tensor& gate, const Tensor& up, bool situ, double beta, double linear_beta) { return ops::glu(gate, up, {situ, beta, linear_beta}); });
  m.def("attn_res_mix(Tensor[] sources, Tensor norm, Tensor proj, float eps) -> Tensor", &ops::attn_res_mix);
  m.def("short_conv(Tensor u, Tensor taps, int[] cu_seqlens, Tensor? window) -> (Tensor, Tensor)", &short_conv);
  m.def("kda_gate(Tensor z, Tensor a_log, Tensor dt_bias, float? lower_bound) -> Tensor", &ops::kda_gate);
  m.def("kda(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, int[] cu_seqlens, Tensor? state, bool bounded, str form) -> (Tensor, Tensor)", &kda);
  m.def("kda_step(Tensor q, Tensor k, Tensor v, Tensor z, Tensor b, Tensor gate, Tensor taps, Tensor a_log, Tensor dt_bias, Tensor norm_weight, "
        "float? lower_bound, float norm_eps, Tensor(a!) state, Tensor(b!) window, int[] cu_seqlens, int[] slots) -> Tensor", &kda_step);
  m.def("mla_packed(Tensor q, Tensor latent, Tensor kv_b, int nope, int rope, int value, int[] cu_seqlens) -> Tensor",
        [](const Tensor& q, const Tensor& latent, const Tensor& kv_b, std::int64_t nope, std::int64_t rope, std::int64_t value,
           at::IntArrayRef cu_seqlens) { return ops::mla_packed(q, latent, kv_b, {nope, rope, value}, rows(cu_seqlens)); });
  m.def("mla_expanded(Tensor q, Tensor latent, Tensor kv_b, int nope, int rope, int value) -> Tensor",
        [](const Tensor& q, const Tensor& latent, const Tensor& kv_b, std::int64_t nope, std::int64_t rope, std::int64_t value) {
          return ops::mla_expanded(q, latent, kv_b, {nope, rope, value});
        });
  m.def("mla_absorbed(Tensor q, Tensor latent, Tensor kv_b, int nope, int rope, int value) -> Tensor",
        [](const Tensor& q, const Tensor& latent, const Tensor& kv_b, std::int64_t nope, std::int64_t rope, std::int64_t value) {
          return ops::mla_absorbed(q, latent, kv_b, {nope, rope, value});
        });
  m.def("route(Tensor h, Tensor weight, Tensor bias, int k, bool renormalize, float scaling_factor) -> (Tensor, Tensor, Tensor, Tensor)", &route);
  m.def("experts(Tensor z, Tensor chosen, Tensor weights, Tensor w1, Tensor w3, Tensor w2, bool situ, float beta, float linear_beta) -> Tensor", &experts);
  m.def("mxfp4_quantize(Tensor values) -> (Tensor, Tensor)", [](const Tensor& values) {
    const ops::Mxfp4 packed = ops::mxfp4_quantize(values);
    return std::tuple{packed.codes, packed.scales};
  });
  m.def("mxfp4_dequantize(Tensor codes, Tensor scales, ScalarType dtype) -> Tensor", &ops::mxfp4_dequantize);
  m.def("mxfp4_round(Tensor values) -> Tensor", &ops::mxfp4_round);
}
