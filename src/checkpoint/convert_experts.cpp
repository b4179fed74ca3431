#include "checkpoint/convert_experts.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/float_values.h"
#include "checkpoint/mxfp4.h"
#include "checkpoint/parallel.h"
#include "checkpoint/quantization_config.h"

namespace k3 {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t kValuesPerTask = 1 << 18;  // a multiple of the group

// config.json as it is, with or without the quantization_config: other keys keep their order and spelling.
std::string converted_config(const std::string& text, bool pack) {
  Json root = Json::parse(text);
  Json& inner = root.contains("text_config") ? root["text_config"] : root;
  if (pack) {
    inner["quantization_config"] = Json::parse(quantization_config_text());
  } else {
    inner.erase("quantization_config");
    root.erase("quantization_config");
  }
  return root.dump(2) + "\n";
}

bool is_checkpoint_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "config.json" || name == "model.safetensors.index.json" || name.ends_with(".safetensors");
}

void copy_other_files(const fs::path& in, const fs::path& out) {
  for (const fs::directory_entry& entry : fs::directory_iterator(in)) {
    if (is_checkpoint_file(entry.path()) || entry.path().filename().string().starts_with("."))
      continue;             // .git, .cache
    std::error_code error;  // links into a download cache become files
    fs::copy(entry.path(), out / entry.path().filename(), fs::copy_options::recursive, error);
    if (error) throw_user("{}: cannot be copied: {}", entry.path().string(), error.message());
  }
}

std::string stem_of(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}  // "...w1.weight_packed" -> "...w1"

class Converter {
 public:
  Converter(const Checkpoint& in, bool pack) : in_(in), pack_(pack) {}

  void plan(const std::vector<ExpectedTensor>& expected) {
    std::set<std::string> planned;
    for (const ExpectedTensor& tensor : expected) {
      const bool expert = tensor.role == Role::routed_expert;
      if (expert) specs_.push_back({tensor.name, tensor.dtype, tensor.shape});
      else take_over(in_.at(tensor.name));
      planned.insert(expert ? stem_of(tensor.name) : tensor.name);
    }
    for (const auto& [name, view] : in_.tensors())  // a vision tower that config.json does not mention
      if (!planned.contains(name) && !planned.contains(stem_of(name))) take_over(view);
  }

  ConvertReport run(const fs::path& folder, const ConvertOptions& options) {
    ConvertReport report;
    for (const auto& [name, view] : in_.tensors()) report.bytes_before += static_cast<std::int64_t>(view.bytes.size());
    for (const TensorSpec& spec : specs_) report.bytes_after += spec.bytes();
    CheckpointWriter writer(folder, specs_, options.max_shard_bytes, in_.metadata());
    std::int64_t done = 0;
    for (const TensorSpec& spec : specs_) {
      if (const TensorView* same = in_.find(spec.name); same != nullptr) {
        writer.write(same->bytes);
      } else if (spec.name.ends_with("weight_scale")) {
        writer.write(std::as_bytes(std::span(scales_)));  // made together with the codes, which come first
      } else {
        ++report.matrices;
        if (pack_) pack(in_.at(stem_of(spec.name) + ".weight"));
        else unpack(stem_of(spec.name));
        writer.write(pack_ ? std::as_bytes(std::span(codes_)) : std::as_bytes(std::span(halves_)));
      }
      done += spec.bytes();
      if (options.progress) options.progress(done, report.bytes_after);
    }
    writer.finish();
    return report;
  }

 private:
  void take_over(const TensorView& view) { specs_.push_back({view.name, view.dtype, view.shape}); }

  void pack(const TensorView& view) {
    const std::int64_t count = view.elements();
    codes_.resize(static_cast<std::size_t>(count / 2));
    scales_.resize(static_cast<std::size_t>(count / kMxfp4Group));
    for_each_range(count, [&](std::size_t first, std::size_t size) {
      std::vector<float> values(size);
      read_floats(view, static_cast<std::int64_t>(first), values);
      for (const float value : values)
        if (!std::isfinite(value))
          throw_user("{}: tensor {} holds {}, which MXFP4 cannot store", view.file.string(), view.name, value);
      mxfp4_encode(values, std::span(codes_).subspan(first / 2, size / 2),
                   std::span(scales_).subspan(first / kMxfp4Group, size / kMxfp4Group));
    });
  }

  void unpack(const std::string& stem) {
    const TensorView &codes = in_.at(stem + ".weight_packed"), &scales = in_.at(stem + ".weight_scale");
    const auto bytes = [](const TensorView& view) {
      return std::span(reinterpret_cast<const std::uint8_t*>(view.bytes.data()), view.bytes.size());
    };
    check_mxfp4_scales(bytes(scales), scales.file.string(), scales.name);
    halves_.resize(codes.bytes.size() * 2);
    for_each_range(static_cast<std::int64_t>(halves_.size()), [&](std::size_t first, std::size_t size) {
      mxfp4_decode_bf16(bytes(codes).subspan(first / 2, size / 2),
                        bytes(scales).subspan(first / kMxfp4Group, size / kMxfp4Group),
                        std::span(halves_).subspan(first, size));
    });
  }

  template <class Action>
  static void for_each_range(std::int64_t count, const Action& action) {
    run_tasks((count + kValuesPerTask - 1) / kValuesPerTask, [&](std::int64_t task) {
      const std::int64_t first = task * kValuesPerTask;
      action(static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(kValuesPerTask, count - first)));
    });
  }

  const Checkpoint& in_;
  bool pack_;
  std::vector<TensorSpec> specs_;
  std::vector<std::uint8_t> codes_, scales_;  // of the matrix at hand
  std::vector<std::uint16_t> halves_;
};

}  // namespace

ConvertReport convert_experts(const fs::path& in, const fs::path& out, const ConvertOptions& options) {
  const ModelConfig before = read_config(in);
  const std::string file = (in / "config.json").string();
  if (before.moe.experts == 0) throw_user("{}: the model has no routed experts; only they are stored in MXFP4", file);
  if (before.packed_experts == options.pack)
    throw_user("{}: the experts are {} already; nothing to do", file, options.pack ? "MXFP4" : "plain floats");
  const Checkpoint checkpoint = open_checkpoint(before, in);
  const std::string text = converted_config(read_file(in / "config.json"), options.pack);
  const ModelConfig after = parse_config(text, file);
  Converter converter(checkpoint, options.pack);
  converter.plan(expected_tensors(after));
  AtomicDirectory target(out);
  write_file_atomic(target.path() / "config.json", text);
  copy_other_files(in, target.path());
  const ConvertReport report = converter.run(target.path(), options);
  target.commit();
  return report;
}

}  // namespace k3
