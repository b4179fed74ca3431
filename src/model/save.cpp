#include <map>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/names.h"
#include "model/model.h"
#include "model/visit.h"
#include "ops/mxfp4/mxfp4.h"

namespace k3 {
namespace {

at::ScalarType stored_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::BF16: return at::kBFloat16;
    case Dtype::F32: return at::kFloat;
    case Dtype::U8: return at::kByte;
    default: K3_CHECK(false, "models are saved as BF16, F32 and U8, not {}", dtype_name(dtype));
  }
}

// Every published tensor by name: the tensor in memory, experts cut out of their stacks.
std::map<std::string, Tensor> by_published_name(const Model& model) {
  std::map<std::string, Tensor> tensors;
  const auto add_stack = [&](const std::string& name, const Tensor& stack, const char* suffix) {
    const Tensor host = stack.detach().cpu();
    for (std::int64_t expert = 0; expert < host.size(0); ++expert) tensors[expert_name(name, expert) + suffix] = host[expert];
  };
  visit_tensors(const_cast<Model&>(model), [&](const Slot& slot) {
    if (slot.experts == nullptr) {
      tensors[slot.name] = slot.tensor->detach().cpu();
    } else if (!model.config.packed_experts) {
      const ops::ExpertMatrix& stack = *slot.experts;
      add_stack(slot.name, stack.packed() ? ops::mxfp4_dequantize(stack.codes, stack.scales, at::kBFloat16) : stack.weight, "");
    } else {
      ops::Mxfp4 packed{slot.experts->codes, slot.experts->scales};
      if (!slot.experts->packed()) packed = ops::mxfp4_quantize(slot.experts->weight);
      add_stack(slot.name, packed.codes, "_packed");
      add_stack(slot.name, packed.scales, "_scale");
    }
  });
  return tensors;
}

Tensor shaped(const Tensor& tensor, const ExpectedTensor& expected) {
  std::int64_t wanted = 1;
  for (const std::int64_t size : expected.shape) wanted *= size;
  Tensor flat = tensor.to(stored_type(expected.dtype)).reshape({-1});
  if (flat.numel() < wanted) flat = at::constant_pad_nd(flat, {0, wanted - flat.numel()});  // A_log is stored padded with zeros
  return flat.contiguous();
}

}  // namespace

void save_model(const Model& model, const std::filesystem::path& folder) {
  ModelConfig config = model.config;
  config.vision.reset();  // the text model is what is in memory
  const std::map<std::string, Tensor> tensors = by_published_name(model);
  const std::vector<ExpectedTensor> expected = expected_tensors(config);
  std::vector<TensorSpec> specs;
  for (const ExpectedTensor& tensor : expected) specs.push_back({tensor.name, tensor.dtype, tensor.shape});

  constexpr std::int64_t kMaxShardBytes = 15 << 20;  // bundled models must keep every file under 16 MiB
  constexpr std::int64_t kLargeModel = std::int64_t{1} << 30;
  std::int64_t total = 0;
  for (const TensorSpec& spec : specs) total += spec.bytes();
  CheckpointWriter writer(folder, specs, total < kLargeModel ? kMaxShardBytes : std::int64_t{5} << 30);
  for (const ExpectedTensor& tensor : expected) {
    const auto found = tensors.find(tensor.name);
    K3_CHECK(found != tensors.end(), "the model has no tensor {}", tensor.name);
    const Tensor bytes = shaped(found->second, tensor);
    writer.write({static_cast<const std::byte*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.nbytes())});
  }
  writer.finish();
  write_file_atomic(folder / "config.json", write_config(config));
}

}  // namespace k3
