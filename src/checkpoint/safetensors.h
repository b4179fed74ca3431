// safetensors files: 8-byte little-endian header length, JSON header, data. Readers map the file and hand out views;
// the writer streams shards of bounded size and an index, and nothing is visible before commit. Torch-free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace k3 {

enum class Dtype {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E4M3,
  F8_E5M2,
  F8_E8M0,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  I64,
  U64,
  F64,
  C64
};
std::int64_t dtype_bits(Dtype dtype);
std::int64_t dtype_bytes(Dtype dtype);     // whole-byte types only (not F4, F6)
std::string_view dtype_name(Dtype dtype);  // as written in the header
std::optional<Dtype> dtype_from_name(std::string_view name);

struct TensorView {
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // valid while the Checkpoint lives
  std::filesystem::path file;
  std::int64_t elements() const;
};

// The tensors of one file's bytes; `name` stands in the errors. Refuses whatever the format forbids: a header that is
// cut off, no JSON or not an object, unknown dtypes, negative sizes, offsets that overlap, leave holes or do not match
// dtype x shape, bytes after the last tensor.
std::vector<TensorView> parse_safetensors(std::span<const std::byte> bytes, const std::filesystem::path& name,
                                          std::map<std::string, std::string>* metadata = nullptr);

// A single .safetensors file, or a directory with model.safetensors or model.safetensors.index.json (any number of
// digits in shard names).
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& path);
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;
  const TensorView& at(const std::string& name) const;  // UserError when missing
  void rename(const std::string& from, const std::string& to);  // of a tensor that is there
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void open_index(const std::filesystem::path& index);
  void add_file(const std::filesystem::path& file);
  std::filesystem::path path_;
  std::vector<std::shared_ptr<MappedFile>> files_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct TensorSpec {  // what will be written
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<std::int64_t> shape;
  std::int64_t bytes() const;
};

// Streams tensors, in the order of `specs`, into DIR: model.safetensors when they fit in one shard, else
// model-00001-of-00000N shards and model.safetensors.index.json. Each file is written beside and renamed on finish().
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path folder, std::vector<TensorSpec> specs,
                   std::int64_t max_shard_bytes = std::int64_t{5} << 30,
                   std::map<std::string, std::string> metadata = {{"format", "pt"}});
  ~CheckpointWriter();
  void write(std::span<const std::byte> bytes);  // next bytes of the current tensor; may be called with pieces of it
  void finish();                                 // all bytes must have been written

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One file, in the order of `specs`; `data[i]` are the bytes of specs[i].
void write_safetensors(const std::filesystem::path& file, const std::vector<TensorSpec>& specs,
                       const std::vector<std::span<const std::byte>>& data,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace k3
