// Writing: shards are planned from the specs, so every header is known before the first byte; data streams through.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace k3 {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kAlignment = 64;  // of the data: loaders may then read any tensor of whole rows in place

std::string header_text(std::span<const TensorSpec> specs, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  std::string text = metadata.empty() ? "{" : header.dump().substr(0, header.dump().size() - 1);
  for (const TensorSpec& spec :
       specs) {  // one entry at a time: an ordered tree of 500,000 names would be searched linearly
    const Json entry = {
        {"dtype", dtype_name(spec.dtype)}, {"shape", spec.shape}, {"data_offsets", {at, at + spec.bytes()}}};
    text += (text.size() > 1 ? "," : "") + Json(spec.name).dump() + ":" + entry.dump();
    at += spec.bytes();
  }
  text += "}";
  text.append((kAlignment - (8 + text.size()) % kAlignment) % kAlignment, ' ');
  return text;
}

void write_header(AtomicFile& file, const std::string& header) {
  std::byte length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 255);
  file.write(length);
  file.write(header);
}

std::int64_t total_bytes(std::span<const TensorSpec> specs) {
  std::int64_t total = 0;
  for (const TensorSpec& spec : specs) total += spec.bytes();
  return total;
}

void check_free_space(const fs::path& folder, std::int64_t needed) {
  std::error_code error;
  fs::path existing = folder.empty() ? fs::path(".") : folder;
  while (!existing.empty() && !fs::exists(existing, error)) existing = existing.parent_path();
  const fs::space_info space = fs::space(existing.empty() ? fs::path(".") : existing, error);
  if (!error && space.available < static_cast<std::uintmax_t>(needed))
    throw_user("{}: {:.2f} GB are to be written, but only {:.2f} GB are free; make room or choose another folder",
               folder.string(), static_cast<double>(needed) * 1e-9, static_cast<double>(space.available) * 1e-9);
}

}  // namespace

std::int64_t TensorSpec::bytes() const {
  std::int64_t bits = dtype_bits(dtype);
  for (const std::int64_t size : shape) bits *= size;
  return bits / 8;
}

struct CheckpointWriter::State {
  fs::path folder;
  std::vector<TensorSpec> specs;
  std::map<std::string, std::string> metadata;
  std::vector<std::size_t> shard_starts;  // index of the first spec of each shard, then specs.size()
  std::vector<AtomicFile> files;          // one for each shard begun
  std::size_t tensor = 0;                 // the one that the next bytes belong to
  std::int64_t left = 0;                  // bytes still missing of it

  std::size_t shards() const { return shard_starts.size() - 1; }
  std::string shard_name(std::size_t shard) const {
    return shards() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:06}.safetensors", shard + 1, shards());
  }
  void plan(std::int64_t max_shard_bytes) {
    std::int64_t used = 0;
    shard_starts = {0};
    for (std::size_t index = 0; index < specs.size(); ++index) {
      if (used > 0 && used + specs[index].bytes() > max_shard_bytes) {
        shard_starts.push_back(index);
        used = 0;
      }
      used += specs[index].bytes();
    }
    shard_starts.push_back(specs.size());
  }
  void begin_shard() {
    const std::size_t shard = files.size();
    const std::size_t first = shard_starts[shard], count = shard_starts[shard + 1] - first;
    files.emplace_back(folder / shard_name(shard));
    write_header(files.back(), header_text(std::span(specs).subspan(first, count), metadata));
  }
  // Steps over finished and empty tensors to the one that takes the next byte.
  void advance() {
    while (left == 0 && tensor < specs.size()) {
      if (files.size() < shards() && tensor == shard_starts[files.size()]) begin_shard();
      left = specs[tensor].bytes();
      if (left == 0) ++tensor;
    }
  }
  std::string index_text() const {
    std::string text =
        fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{", total_bytes(specs));
    for (std::size_t shard = 0; shard < shards(); ++shard)
      for (std::size_t index = shard_starts[shard]; index < shard_starts[shard + 1]; ++index)
        text +=
            fmt::format("{}\n    {}: \"{}\"", index > 0 ? "," : "", Json(specs[index].name).dump(), shard_name(shard));
    return text + "\n  }\n}\n";
  }
};

CheckpointWriter::CheckpointWriter(fs::path folder, std::vector<TensorSpec> specs, std::int64_t max_shard_bytes,
                                   std::map<std::string, std::string> metadata)
    : state_(std::make_unique<State>()) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(folder / name))
      throw_user("{}: already exists; choose another folder or remove it first", (folder / name).string());
  state_->folder = std::move(folder);
  state_->specs = std::move(specs);
  state_->metadata = std::move(metadata);
  check_free_space(state_->folder, total_bytes(state_->specs));
  state_->plan(max_shard_bytes);
  if (state_->specs.empty()) state_->begin_shard();
  state_->advance();
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::write(std::span<const std::byte> bytes) {
  State& state = *state_;
  while (!bytes.empty()) {
    K3_CHECK(state.tensor < state.specs.size(), "more bytes written than the specs of {} declare",
             state.folder.string());
    const auto count = std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(state.left));
    state.files.back().write(bytes.first(count));
    bytes = bytes.subspan(count);
    state.left -= static_cast<std::int64_t>(count);
    if (state.left == 0) {
      ++state.tensor;
      state.advance();
    }
  }
}

void CheckpointWriter::finish() {
  State& state = *state_;
  K3_CHECK(state.tensor == state.specs.size(), "tensor {} of {} was not written in full",
           state.specs[state.tensor].name, state.folder.string());
  for (AtomicFile& file : state.files) file.commit();
  if (state.shards() > 1) write_file_atomic(state.folder / "model.safetensors.index.json", state.index_text());
}

void write_safetensors(const fs::path& path, const std::vector<TensorSpec>& specs,
                       const std::vector<std::span<const std::byte>>& data,
                       const std::map<std::string, std::string>& metadata) {
  K3_CHECK(specs.size() == data.size(), "{} specs but {} tensors for {}", specs.size(), data.size(), path.string());
  check_free_space(path.parent_path(), total_bytes(specs));
  AtomicFile file(path);
  write_header(file, header_text(specs, metadata));
  for (std::size_t index = 0; index < specs.size(); ++index) {
    K3_CHECK(static_cast<std::int64_t>(data[index].size()) == specs[index].bytes(),
             "tensor {}: {} bytes given, its shape needs {}", specs[index].name, data[index].size(),
             specs[index].bytes());
    file.write(data[index]);
  }
  file.commit();
}

}  // namespace k3
