#include "train/run_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/safetensors.h"

namespace k3::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::pair<std::string, Tensor>> all_state(
    const Optimizer& optimizer, const std::vector<std::pair<std::string, Tensor>>& router_biases) {
  std::vector<std::pair<std::string, Tensor>> tensors = optimizer.state();
  for (const auto& [name, bias] : router_biases) tensors.emplace_back("bias." + name, bias);
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  return tensors;
}

void write_tensors(const fs::path& file, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<TensorSpec> specs;
  std::vector<std::span<const std::byte>> data;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, Dtype::F32, tensor.sizes().vec()});
    data.emplace_back(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  write_safetensors(file, specs, data);
}

std::int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.rfind("step-", 0) == 0 ? std::atoll(name.c_str() + 5) : -1;
}

// Checkpoints of later steps, left from before a rewind, are not touched.
void keep_last(const fs::path& checkpoints, std::int64_t newest, std::int64_t keep) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    const std::int64_t step = step_of(entry.path());
    if (step >= 0 && step <= newest && !entry.is_symlink()) found.emplace_back(step, entry.path());
  }
  std::sort(found.begin(), found.end());
  for (std::size_t index = 0; index + static_cast<std::size_t>(keep) < found.size(); ++index)
    fs::remove_all(found[index].second);
}

void point_latest(const fs::path& checkpoints, const std::string& name) {
  const fs::path temporary = checkpoints / ".latest.part";
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_directory_symlink(name, temporary, error);
  if (!error) fs::rename(temporary, checkpoints / "latest", error);
  if (error) throw_user("{}: cannot be written: {}", (checkpoints / "latest").string(), error.message());
}

json cursor_json(const Cursor& cursor) {
  json list = json::array();
  for (const SourceCursor& source : cursor)
    list.push_back(
        {{"epoch", source.epoch}, {"sample", source.sample}, {"offset", source.offset}, {"tokens", source.tokens}});
  return list;
}

}  // namespace

fs::path save_run(const fs::path& run, const RunState& state, const Model& model, const Optimizer& optimizer,
                  const std::vector<std::pair<std::string, Tensor>>& router_biases, const fs::path& tokenizer,
                  std::int64_t keep) {
  const fs::path checkpoints = run / "checkpoints";
  const std::string name = fmt::format("step-{}", state.step);
  AtomicDirectory folder(checkpoints / name, /*replace=*/true);
  save_model(model, folder.path());
  for (const char* file : {"tiktoken.model", "tokenizer_config.json"})
    if (fs::exists(tokenizer / file)) write_file_atomic(folder.path() / file, read_file(tokenizer / file));
  write_tensors(folder.path() / "optimizer.safetensors", all_state(optimizer, router_biases));
  const json object = {{"step", state.step},
                       {"tokens", state.tokens},
                       {"seconds", state.seconds},
                       {"dtype", state.dtype},
                       {"cursor", cursor_json(state.cursor)},
                       {"recipe", state.recipe},
                       {"shards", state.shards}};
  write_file_atomic(folder.path() / "trainer_state.json", object.dump(1) + "\n");
  folder.commit();
  point_latest(checkpoints, name);
  keep_last(checkpoints, state.step, keep);
  return checkpoints / name;
}

std::optional<fs::path> latest_checkpoint(const fs::path& run) {
  const fs::path link = run / "checkpoints" / "latest";
  std::error_code error;
  if (!fs::exists(link, error)) return std::nullopt;
  const fs::path target = fs::is_symlink(link) ? run / "checkpoints" / fs::read_symlink(link) : link;
  return target;
}

RunState read_run_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "trainer_state.json";
  try {
    const json object = json::parse(read_file(path));
    RunState state;
    state.step = object.at("step");
    state.tokens = object.at("tokens");
    state.seconds = object.at("seconds");
    state.dtype = object.at("dtype");
    state.recipe = object.at("recipe").get<std::map<std::string, std::string>>();
    if (object.contains("shards")) state.shards = object.at("shards").get<std::map<std::string, std::string>>();
    for (const json& source : object.at("cursor"))
      state.cursor.push_back({source.at("epoch"), source.at("sample"), source.at("offset"), source.at("tokens")});
    return state;
  } catch (const json::exception& error) {
    throw_user("{}: is damaged ({}); point checkpoints/latest at an older checkpoint", path.string(), error.what());
  }
}

void load_run(const fs::path& checkpoint, const RunState& state, Optimizer& optimizer,
              const std::vector<std::pair<std::string, Tensor>>& router_biases) {
  at::NoGradGuard no_grad;
  const Checkpoint file(checkpoint / "optimizer.safetensors");
  std::set<std::string> read;
  const auto find = [&](const std::string& name) {
    const TensorView& view = file.at(name);
    if (view.dtype != Dtype::F32) throw_user("{}: tensor {} must be F32", view.file.string(), name);
    read.insert(name);
    return at::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape, at::TensorOptions().dtype(at::kFloat))
        .clone();
  };
  optimizer.load_state(find, state.step);
  for (auto [name, bias] : router_biases) bias.copy_(find("bias." + name));
  for (const auto& [name, view] : file.tensors())
    if (!read.contains(name)) throw_user("{}: tensor {} belongs to another model", view.file.string(), name);
}

void check_same_recipe(const RunState& state, const std::map<std::string, std::string>& recipe,
                       const fs::path& checkpoint) {
  static const std::set<std::string> kFree = {"shards",
                                              "train.log_every",
                                              "train.checkpoint_every",
                                              "train.keep_checkpoints",
                                              "train.validate_every",
                                              "train.validation_tokens",
                                              "train.peak_flops"};
  const auto compare = [&](const std::map<std::string, std::string>& from,
                           const std::map<std::string, std::string>& to) {
    for (const auto& [key, value] : from) {
      if (kFree.contains(key) || key.rfind("validation.", 0) == 0) continue;
      const auto other = to.find(key);
      if (other != to.end() && other->second == value) continue;
      throw_user(
          "{}: key {} of the recipe is not what this run began with; use the same recipe or start a new run with --out",
          checkpoint.string(), key);
    }
  };
  compare(state.recipe, recipe);
  compare(recipe, state.recipe);
}

}  // namespace k3::train
