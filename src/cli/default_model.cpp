#include "cli/default_model.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace k3::cli {
namespace fs = std::filesystem;

void add_model_options(CLI::App& command, ModelOptions& options, bool positional) {
  const char* about = "folder of a Hugging Face checkpoint (default: $K3_MODEL, then the bundled models/nano)";
  command.add_option(positional ? "MODEL,--model" : "--model", options.model, about)->type_name("DIR");
  command.add_option("--device", options.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--dtype", options.dtype, "of weights and activations; MXFP4 experts stay packed. auto: float32 for a small model on a CPU, else bfloat16")
      ->check(CLI::IsMember({"auto", "bfloat16", "float32", "float64"}))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "CPU threads (default: one a core, fewer for a small model)")->check(CLI::Range(1, 1024));
}

fs::path model_folder(const ModelOptions& options) {
  if (!options.model.empty()) {
    if (!fs::is_directory(options.model)) throw_user("{}: there is no such model folder; check the path", options.model);
    return options.model;
  }
  if (const char* named = std::getenv("K3_MODEL"); named != nullptr && *named != '\0') {
    if (!fs::is_directory(named)) throw_user("{}: there is no such model folder; K3_MODEL names it", named);
    return named;
  }
  const fs::path bundled = fs::path(K3_SOURCE_DIR) / "models" / "nano";
  if (!fs::exists(bundled / "config.json")) throw_user("{}: the bundled model is not there; name one with --model DIR", bundled.string());
  return bundled;
}

namespace {

constexpr std::uintmax_t kSmallModelBytes = std::uintmax_t{1} << 30;

// fp32 products are the faster ones on most CPUs, bf16 weights the smaller ones: small models take speed, large ones memory.
at::ScalarType dtype_of(const ModelOptions& options, at::Device device) {
  if (options.dtype == "float64") return at::kDouble;
  if (options.dtype == "float32") return at::kFloat;
  if (options.dtype == "bfloat16" || device.is_cuda()) return at::kBFloat16;
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(model_folder(options)))
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  return bytes <= kSmallModelBytes ? at::kFloat : at::kBFloat16;
}

}  // namespace

namespace {

// A thread must have enough work for the wait at the end of every operation to pay: one for each 32 MiB of weights.
void choose_threads(const ModelOptions& options) {
  constexpr std::uintmax_t bytes_a_thread = 32 << 20;
  if (options.threads > 0) return at::set_num_threads(options.threads);
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(model_folder(options)))
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  at::set_num_threads(static_cast<int>(std::min<std::uintmax_t>(1 + bytes / bytes_a_thread, at::get_num_threads())));
}

}  // namespace

LoadOptions load_options(const ModelOptions& options) {
  choose_threads(options);
  LoadOptions load;
  std::string device = options.device;
  if (device == "auto") device = at::hasCUDA() ? "cuda" : "cpu";
  if (device != "cpu" && device != "cuda" && device.rfind("cuda:", 0) != 0)
    throw_user("--device {} is none of auto, cpu, cuda, cuda:N", options.device);
  if (device != "cpu" && !at::hasCUDA()) throw_user("--device {}: no usable GPU was found; use --device cpu", options.device);
  if (device.find_first_not_of("0123456789", 5) != std::string::npos && device.rfind("cuda:", 0) == 0)
    throw_user("--device {}: write cuda:N with a number", options.device);
  load.device = at::Device(device);
  if (load.device.is_cuda() && load.device.has_index() && load.device.index() >= static_cast<int>(at::getNumGPUs()))
    throw_user("--device {}: there are only {} GPUs", options.device, at::getNumGPUs());
  load.dtype = dtype_of(options, load.device);
  load.keep_experts_packed = load.dtype != at::kDouble;
  return load;
}

Model open_model(const ModelOptions& options) { return load_model(model_folder(options), load_options(options)); }

bool has_tokenizer(const fs::path& folder) { return fs::exists(folder / "tiktoken.model"); }

Tokenizer open_tokenizer(const fs::path& folder, const ModelConfig& config) {
  if (!has_tokenizer(folder))
    throw_user("{}: there is no tiktoken.model, so text cannot be read or written; give token ids with --ids", folder.string());
  Tokenizer tokenizer = Tokenizer::load(folder);
  if (tokenizer.vocab() > config.vocab)
    throw_user("{}: the tokenizer has {} tokens but config.json says vocab_size {}; they do not belong together", (folder / "tiktoken.model").string(),
               tokenizer.vocab(), config.vocab);
  return tokenizer;
}

}  // namespace k3::cli
