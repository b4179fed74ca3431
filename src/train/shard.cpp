#include "train/shard.h"

#include "base/error.h"

namespace k3::train {
namespace {

template <class Value>
std::span<const Value> values_of(const TensorView& view) {
  return {reinterpret_cast<const Value*>(view.bytes.data()), view.bytes.size() / sizeof(Value)};
}

}  // namespace

Shard::Shard(const std::filesystem::path& file) : file_(file) {
  const TensorView& ids = file_.at("ids");
  if (ids.dtype == Dtype::U16) {
    narrow_ = values_of<std::uint16_t>(ids);
  } else if (ids.dtype == Dtype::I32) {
    wide_ = values_of<std::int32_t>(ids);
  } else {
    throw_user("{}: tensor ids has dtype {}; remove the file, it will be made again", file.string(),
               dtype_name(ids.dtype));
  }
  const TensorView& starts = file_.at("starts");
  if (starts.dtype == Dtype::I64) starts_ = values_of<std::int64_t>(starts);
  if (const TensorView* loss = file_.find("loss")) loss_ = values_of<std::uint8_t>(*loss);
  if (const auto kind = file_.metadata().find("documents"); kind != file_.metadata().end())
    whole_ = kind->second == "whole";
  bool good = starts_.size() >= 2 && starts_.front() == 0 && starts_.back() == ids.elements() &&
              (loss_.empty() || static_cast<std::int64_t>(loss_.size()) == (ids.elements() + 7) / 8);
  for (std::size_t document = 1; good && document < starts_.size(); ++document)
    good = starts_[document - 1] <= starts_[document];
  if (!good)
    throw_user("{}: starts and ids do not fit together; remove the file, it will be made again", file.string());
}

void ShardWriter::add(const TrainingIds& document) {
  K3_CHECK(document.ids.size() == document.loss.size(), "a document has {} ids and {} loss flags", document.ids.size(),
           document.loss.size());
  for (std::size_t index = 0; index < document.ids.size(); ++index) {
    const std::size_t token = ids_.size();
    ids_.push_back(document.ids[index]);
    if (token % 8 == 0) loss_.push_back(0);
    if (document.loss[index] != 0) loss_.back() = static_cast<std::uint8_t>(loss_.back() | (1u << (token % 8)));
    all_count_ = all_count_ && document.loss[index] != 0;
  }
  starts_.push_back(static_cast<std::int64_t>(ids_.size()));
}

void ShardWriter::write(const std::filesystem::path& file, std::int64_t vocab) const {
  const auto tokens = static_cast<std::int64_t>(ids_.size());
  const bool narrow = vocab <= 65536;
  std::vector<std::uint16_t> short_ids;
  if (narrow) short_ids.assign(ids_.begin(), ids_.end());
  std::vector<TensorSpec> specs = {{"starts", Dtype::I64, {static_cast<std::int64_t>(starts_.size())}},
                                   {"ids", narrow ? Dtype::U16 : Dtype::I32, {tokens}}};
  std::vector<std::span<const std::byte>> data = {
      std::as_bytes(std::span(starts_)), narrow ? std::as_bytes(std::span(short_ids)) : std::as_bytes(std::span(ids_))};
  if (!all_count_) {
    specs.push_back({"loss", Dtype::U8, {static_cast<std::int64_t>(loss_.size())}});
    data.push_back(std::as_bytes(std::span(loss_)));
  }
  write_safetensors(file, specs, data, {{"format", "k3 tokens"}, {"documents", whole_ ? "whole" : "text"}});
}

}  // namespace k3::train
