#include "base/error.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/names.h"
#include "model/model.h"
#include "model/visit.h"
#include "ops/mxfp4/mxfp4.h"

namespace k3 {
namespace {

at::ScalarType scalar_type(const TensorView& view) {
  switch (view.dtype) {
    case Dtype::BF16: return at::kBFloat16;
    case Dtype::F16: return at::kHalf;
    case Dtype::F32: return at::kFloat;
    case Dtype::F64: return at::kDouble;
    case Dtype::U8: return at::kByte;
    default: throw_user("{}: tensor {} has dtype {}; weights must be BF16, F16, F32, F64 or packed U8", view.file.string(), view.name, dtype_name(view.dtype));
  }
}

// A tensor over the mapped bytes, valid while the checkpoint is open.
Tensor mapped(const TensorView& view) {
  return at::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape, at::TensorOptions().dtype(scalar_type(view)));
}

Tensor own(const Tensor& source, at::ScalarType dtype, at::Device device) { return source.to(at::TensorOptions().dtype(dtype).device(device), false, true); }

Tensor plain_tensor(const Slot& slot, const TensorView& view, at::ScalarType dtype, at::Device device) {
  std::int64_t wanted = 1;
  for (const std::int64_t size : slot.shape) wanted *= size;
  // A_log is stored longer than the number of heads; everything else differs by axes of length one only.
  return own(mapped(view).reshape({-1}).narrow(0, 0, wanted).view(slot.shape), dtype, device);
}

void load_experts(const Slot& slot, const Checkpoint& checkpoint, bool packed, const LoadOptions& options) {
  const std::int64_t experts = slot.shape[0], out = slot.shape[1], in = slot.shape[2];
  const auto host = at::TensorOptions().dtype(at::kByte);
  if (!packed) {
    Tensor stack = at::empty(slot.shape, host.dtype(options.dtype));
    for (std::int64_t expert = 0; expert < experts; ++expert) stack[expert].copy_(mapped(checkpoint.at(expert_name(slot.name, expert))));
    slot.experts->weight = stack.to(options.device);
    return;
  }
  Tensor codes = at::empty({experts, out, in / 2}, host), scales = at::empty({experts, out, in / 32}, host);
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const std::string name = expert_name(slot.name, expert);
    const TensorView& scale_view = checkpoint.at(name + "_scale");
    check_mxfp4_scales({reinterpret_cast<const std::uint8_t*>(scale_view.bytes.data()), scale_view.bytes.size()}, scale_view.file.string(), scale_view.name);
    codes[expert].copy_(mapped(checkpoint.at(name + "_packed")));
    scales[expert].copy_(mapped(scale_view));
  }
  if (options.keep_experts_packed) {
    slot.experts->codes = codes.to(options.device);
    slot.experts->scales = scales.to(options.device);
  } else {
    slot.experts->weight = ops::mxfp4_dequantize(codes.to(options.device), scales.to(options.device), options.dtype);
  }
}

}  // namespace

Model load_model(const std::filesystem::path& folder, const LoadOptions& options) {
  Model model;
  model.config = read_config(folder);
  const Checkpoint checkpoint = open_checkpoint(model.config, folder);
  const at::ScalarType island = options.dtype == at::kDouble ? at::kDouble : at::kFloat;
  visit_tensors(model, [&](const Slot& slot) {
    if (slot.experts != nullptr) load_experts(slot, checkpoint, model.config.packed_experts, options);
    else *slot.tensor = plain_tensor(slot, checkpoint.at(slot.name), slot.island ? island : options.dtype, options.device);
  });
  if (model.config.tied_embeddings) model.head = model.embedding;
  return model;
}

}  // namespace k3
