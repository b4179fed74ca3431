// Reading: the header of one file is checked as a whole (offsets must tile the data exactly), then the
// shards of a folder are joined under the index.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/json_text.h"

namespace k3 {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::int64_t kMaxIndexBytes = 1 << 30;        // Kimi K3: 59,764,096 bytes

// Names come from the file: no control characters in one-line messages.
std::string shown(const std::string& name) {
  std::string text = Json(name.substr(0, 200)).dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

std::uint64_t header_length(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < kLengthBytes)
    throw_user("{}: is {} bytes long, too short for a safetensors file; the download was cut off, fetch it again", file,
               bytes.size());
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  if (length > kMaxHeaderBytes)
    throw_user("{}: header length {} is above the format's limit of {}; this is not a safetensors file", file, length,
               kMaxHeaderBytes);
  if (length > bytes.size() - kLengthBytes)
    throw_user("{}: header length {} is longer than the file ({} bytes); the download was cut off, fetch it again",
               file, length, bytes.size());
  return length;
}

// bits of dtype x shape; -1 when the product does not fit.
std::int64_t checked_bits(Dtype dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bits = dtype_bits(dtype);
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(bits, size, &bits)) return -1;
  return bits;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::int64_t to_size(const Json& value, const std::string& file, const std::string& tensor, const char* field) {
  const bool whole = value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
  if (!whole)
    throw_user("{}: tensor {}: {} must hold whole numbers that are not negative; the header is damaged", file,
               shown(tensor), field);
  return value.get<std::int64_t>();
}

struct Entry {
  TensorView view;
  std::int64_t begin = 0, end = 0;
};

Entry parse_entry(const std::string& name, const Json& value, const std::string& file) {
  Entry entry;
  entry.view.name = name;
  const auto fail = [&](const std::string& problem) { throw_user("{}: tensor {}: {}", file, shown(name), problem); };
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets"))
    fail("must have exactly dtype, shape and data_offsets; the header is damaged");
  const Json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  const std::optional<Dtype> known =
      dtype.is_string() ? dtype_from_name(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!known)
    fail(fmt::format("unknown dtype {}",
                     dtype.is_string() ? shown(dtype.get_ref<const std::string&>()) : "that is not text"));
  entry.view.dtype = *known;
  if (!shape.is_array()) fail("shape must be a list");
  for (const Json& size : shape) entry.view.shape.push_back(to_size(size, file, name, "shape"));
  if (!offsets.is_array() || offsets.size() != 2) fail("data_offsets must be a list of two numbers");
  entry.begin = to_size(offsets[0], file, name, "data_offsets");
  entry.end = to_size(offsets[1], file, name, "data_offsets");
  if (entry.end < entry.begin) fail(fmt::format("data_offsets [{}, {}] run backwards", entry.begin, entry.end));
  const std::int64_t bits = checked_bits(entry.view.dtype, entry.view.shape);
  if (bits < 0) fail(fmt::format("shape {} is too large", shape_text(entry.view.shape)));
  if (bits % 8 != 0 || bits / 8 != entry.end - entry.begin)
    fail(fmt::format("{} {} needs {} bytes, data_offsets give {}; the header is damaged", dtype_name(entry.view.dtype),
                     shape_text(entry.view.shape), bits / 8, entry.end - entry.begin));
  return entry;
}

// Tensors tile the data without overlap, hole or rest.
void check_tiling(std::vector<Entry>& entries, std::int64_t data_bytes, const std::string& file) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  std::int64_t at = 0;
  const Entry* before = nullptr;
  for (const Entry& entry : entries) {
    if (entry.begin < at)
      throw_user("{}: tensors {} and {} overlap in data_offsets; the header is damaged", file, shown(before->view.name),
                 shown(entry.view.name));
    if (entry.begin > at)
      throw_user("{}: bytes {} to {} before tensor {} belong to no tensor; the header is damaged", file, at,
                 entry.begin, shown(entry.view.name));
    if (entry.end > data_bytes)
      throw_user(
          "{}: tensor {} ends at data byte {}, but the file has only {}; the download was cut off, fetch it again",
          file, shown(entry.view.name), entry.end, data_bytes);
    at = entry.end;
    before = &entry;
  }
  if (at < data_bytes) throw_user("{}: {} bytes follow the last tensor; the file is damaged", file, data_bytes - at);
}

}  // namespace

std::int64_t TensorView::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::vector<TensorView> parse_safetensors(std::span<const std::byte> bytes, const fs::path& path,
                                          std::map<std::string, std::string>* metadata) {
  const std::string file = path.string();
  const std::uint64_t length = header_length(bytes, file);
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  const Json root = parse_json_tree(header, file + " (header)");
  if (!root.is_object()) throw_user("{}: the header must be a JSON object", file);
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + length);
  std::vector<Entry> entries;
  for (const auto& [name, value] : root.items()) {
    if (name != "__metadata__") {
      entries.push_back(parse_entry(name, value, file));
      continue;
    }
    if (!value.is_object()) throw_user("{}: __metadata__ must be an object of texts", file);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) throw_user("{}: __metadata__ {} must be text", file, shown(key));
      if (metadata != nullptr) (*metadata)[key] = text.get<std::string>();
    }
  }
  check_tiling(entries, static_cast<std::int64_t>(data.size()), file);
  std::vector<TensorView> views;
  for (Entry& entry : entries) {
    entry.view.bytes =
        data.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.end - entry.begin));
    entry.view.file = path;
    views.push_back(std::move(entry.view));
  }
  return views;
}

Checkpoint::Checkpoint(const fs::path& path) : path_(path) {
  if (!fs::exists(path)) throw_user("{}: does not exist; check the path of the model", path.string());
  if (!fs::is_directory(path)) {
    add_file(path);
    return;
  }
  const fs::path single = path / "model.safetensors", index = path / "model.safetensors.index.json";
  if (fs::exists(single) && fs::exists(index))
    throw_user("{}: holds both model.safetensors and model.safetensors.index.json; remove the one that is out of date",
               path.string());
  if (fs::exists(single)) add_file(single);
  else if (fs::exists(index)) open_index(index);
  else
    throw_user("{}: has neither model.safetensors nor model.safetensors.index.json; is this a model folder?",
               path.string());
}

void Checkpoint::open_index(const fs::path& index) {
  const MappedFile map(index);
  const std::string file = index.string();
  if (static_cast<std::int64_t>(map.bytes().size()) > kMaxIndexBytes)
    throw_user("{}: is {} bytes long; this is not an index", file, map.bytes().size());
  const Json root = parse_json_tree({reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()}, file);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
    throw_user("{}: weight_map is missing; it must map tensor names to shard files", file);
  const Json& weight_map = root["weight_map"];
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map.items()) {
    if (!shard.is_string()) throw_user("{}: weight_map: {} must be the name of a shard file", file, shown(name));
    const std::string& shard_name = shard.get_ref<const std::string&>();
    if (shard_name.empty() || shard_name == "." || shard_name == ".." ||
        shard_name.find_first_of(std::string("/\\\0", 3)) != std::string::npos)
      throw_user("{}: weight_map: {} points to {}; shards must be plain file names in the same folder", file,
                 shown(name), shown(shard_name));
    shards.insert(shard_name);
  }
  for (const std::string& shard : shards) {
    if (!fs::exists(path_ / shard))
      throw_user("{}: shard {} named by the index is missing; fetch it again", path_.string(), shown(shard));
    add_file(path_ / shard);
  }
  for (const auto& [name, shard] : weight_map.items()) {
    const TensorView* view = find(name);
    if (view == nullptr || view->file.filename() != shard.get_ref<const std::string&>())
      throw_user("{}: tensor {} is not in {} as the index says; index and shards are from different downloads", file,
                 shown(name), shown(shard.get_ref<const std::string&>()));
  }
  for (const auto& [name, view] : tensors_)
    if (!weight_map.contains(name))
      throw_user("{}: tensor {} in {} is not listed in the index; index and shards are from different downloads", file,
                 shown(name), view.file.filename().string());
}

void Checkpoint::add_file(const fs::path& file) {
  files_.push_back(std::make_shared<MappedFile>(file));
  for (TensorView& view : parse_safetensors(files_.back()->bytes(), file, &metadata_)) {
    const auto [place, added] = tensors_.try_emplace(view.name, view);
    if (!added)
      throw_user("{}: tensor {} is also in {}; keep it in one shard", file.string(), shown(view.name),
                 place->second.file.filename().string());
  }
}

const TensorView* Checkpoint::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void Checkpoint::rename(const std::string& from, const std::string& to) {
  auto node = tensors_.extract(from);
  K3_CHECK(!node.empty() && !tensors_.contains(to), "renaming tensor {} to {}", from, to);
  node.key() = to;
  node.mapped().name = to;
  tensors_.insert(std::move(node));
}

const TensorView& Checkpoint::at(const std::string& name) const {
  const TensorView* view = find(name);
  if (view == nullptr) throw_user("{}: tensor {} is missing", path_.string(), shown(name));
  return *view;
}

}  // namespace k3
