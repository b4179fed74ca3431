// k3 logits: logits of every position and, on request, everything that implementations are compared by. Names and shapes of the
// tensors are those of tests/data/golden/README.md.
#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/safetensors.h"
#include "cli/commands.h"
#include "cli/default_model.h"
#include "cli/id_list.h"
#include "model/generate.h"

namespace k3::cli {
namespace {

constexpr std::int64_t kChunkTokens = 1024;

struct LogitsFlags {
  ModelOptions model;
  std::string ids, ids_file, out;
  bool states = false;
};

Dtype file_dtype(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return Dtype::F64;
    case at::kBFloat16: return Dtype::BF16;
    case at::kInt: return Dtype::I32;
    default: return Dtype::F32;
  }
}

// Pieces of chunks, joined along the token axis; lists of layers become a leading axis.
struct Collected {
  std::vector<Tensor> logits, final_hidden;
  std::vector<std::vector<Tensor>> hidden, experts, weights;  // [chunk][layer]
};

Tensor join(const std::vector<std::vector<Tensor>>& chunks) {  // -> [layers, tokens, ...]
  std::vector<Tensor> stacked;
  for (const auto& layers : chunks) stacked.push_back(at::stack(layers));
  return at::cat(stacked, 1);
}

std::map<std::string, Tensor> compute(const Model& model, const std::vector<std::int64_t>& ids, bool states) {
  const at::NoGradGuard no_grad;
  const auto length = static_cast<std::int64_t>(ids.size());
  StatePool pool = StatePool::make(model.config, 1, length, model.device(), model.dtype());
  Collected all;
  Observer observer;
  if (states) {
    observer.after_layer = [&](std::int64_t, const Tensor& sum) { all.hidden.back().push_back(sum.detach().clone()); };
    observer.after_router = [&](std::int64_t, const ops::Routing& routing) {
      all.experts.back().push_back(routing.experts.to(at::kInt));
      all.weights.back().push_back(routing.weights.clone());
    };
  }
  for (std::int64_t start = 0; start < length; start += kChunkTokens) {
    all.hidden.emplace_back(), all.experts.emplace_back(), all.weights.emplace_back();
    const auto chunk = std::span(ids).subspan(start, std::min(kChunkTokens, length - start));
    const Tensor hidden = forward(model, continue_row(chunk, start, 0, model.device()), &pool, &observer);
    all.logits.push_back(logits(model, hidden).cpu());
    if (states) all.final_hidden.push_back(hidden.cpu());
  }
  std::map<std::string, Tensor> tensors{{"ids", at::tensor(ids, at::kInt)}, {"logits", at::cat(all.logits)}};
  if (!states) return tensors;
  const SequenceState state = save_state(pool, 0);
  tensors["final_hidden"] = at::cat(all.final_hidden);
  tensors["hidden"] = join(all.hidden);
  if (!all.experts.front().empty()) {
    tensors["router_experts"] = join(all.experts);
    tensors["router_weights"] = join(all.weights);
  }
  if (model.config.kda_layers() > 0) {
    const std::int64_t taps = state.conv_window.size(1);
    tensors["kda_state"] = state.kda_state;
    tensors["kda_conv_window"] = state.conv_window.reshape({state.conv_window.size(0), taps, 3, -1}).transpose(1, 2);
  }
  if (model.config.mla_layers() > 0) {
    tensors["mla_latent"] = state.latent.narrow(2, 0, model.config.mla.kv_lora_rank);
    tensors["mla_shared_key"] = state.latent.narrow(2, model.config.mla.kv_lora_rank, model.config.mla.rope_dim);
  }
  return tensors;
}

void write(const std::string& out, std::map<std::string, Tensor>& tensors, const LogitsFlags& flags) {
  std::vector<TensorSpec> specs;
  std::vector<std::span<const std::byte>> data;
  for (auto& [name, tensor] : tensors) {
    tensor = tensor.cpu().contiguous();
    specs.push_back({name, file_dtype(tensor), tensor.sizes().vec()});
    data.emplace_back(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  write_safetensors(out, specs, data, {{"format", "pt"}, {"model", model_folder(flags.model).string()}, {"dtype", flags.model.dtype}});
}

void logits(const LogitsFlags& flags) {
  const std::string source = flags.ids_file.empty() ? "--ids" : flags.ids_file;
  const std::vector<std::int64_t> ids = parse_ids(flags.ids_file.empty() ? flags.ids : read_file(flags.ids_file), source);
  check_prompt(read_config(model_folder(flags.model)), ids, 0);
  const Model model = open_model(flags.model);
  std::map<std::string, Tensor> tensors = compute(model, ids, flags.states);
  write(flags.out, tensors, flags);
  fmt::print("{}: ", flags.out);
  const char* between = "";
  for (const auto& [name, tensor] : tensors) {
    fmt::print("{}{} [{}]", between, name, fmt::join(tensor.sizes().vec(), ", "));
    between = "; ";
  }
  fmt::print("\n");
}

}  // namespace

void add_logits(CLI::App& app) {
  auto* command = app.add_subcommand("logits", "write the logits of every position, to compare implementations");
  auto flags = std::make_shared<LogitsFlags>();
  flags->model.dtype = "float32";
  add_model_options(*command, flags->model, true);
  auto* ids = command->add_option("--ids", flags->ids, "token ids, as 1,2,3");
  auto* file = command->add_option("--ids-file", flags->ids_file, "file with token ids")->excludes(ids);
  command->add_option("--out", flags->out, "safetensors file to write: ids [tokens], logits [tokens, vocab]")->required();
  command->add_flag("--states", flags->states,
                    "also final states (kda_state, kda_conv_window, mla_latent, mla_shared_key), hidden, final_hidden, router choices");
  command->footer(
      "Examples:\n"
      "  k3 logits DIR --ids 1,2,3 --out logits.safetensors\n"
      "  k3 logits DIR --ids-file ids.txt --dtype float64 --states --out all.safetensors\n"
      "  k3 logits --ids \"$(k3 tokenize --text 'Hello')\" --out hello.safetensors");
  command->callback([flags, ids, file] {
    if (ids->count() + file->count() == 0) throw_user("give token ids with --ids 1,2,3 or --ids-file F");
    logits(*flags);
  });
}

}  // namespace k3::cli
