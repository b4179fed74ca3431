// Mean next-token loss on text, cut into windows that each start from nothing: nats per token and bits per byte of the
// predicted tokens.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "model/batch.h"
#include "train/tasks/evaluate.h"
#include "train/text_source.h"

namespace k3::train {

namespace {

constexpr std::int64_t kBatchTokens = 2048;  // of one forward call: on a CPU larger ones are slower a token

std::vector<std::string> documents_of(const std::filesystem::path& path) {
  const std::string name = path.string();
  if (name.ends_with(".jsonl") || name.ends_with(".jsonl.zst")) return read_documents(path);
  return {read_text(path)};
}

}  // namespace

LossResult evaluate_loss(const Model& model, const Tokenizer& tokenizer, const std::filesystem::path& path,
                         const LossOptions& options, const std::function<void(std::int64_t, std::int64_t)>& progress) {
  LossResult result;
  std::vector<std::vector<std::int64_t>> windows;
  for (const std::string& text : documents_of(path)) {
    ++result.documents;
    const std::vector<TokenId> ids = tokenizer.encode(text);
    for (std::size_t at = 0; at + 1 < ids.size(); at += static_cast<std::size_t>(options.length)) {
      const std::size_t end =
          std::min(ids.size(), at + static_cast<std::size_t>(options.length) + 1);  // the last one is target only
      windows.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                           ids.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  if (windows.empty()) throw_user("{}: holds no text to measure", path.string());
  if (options.windows > 0 && options.windows < static_cast<std::int64_t>(windows.size())) {
    std::vector<std::vector<std::int64_t>> chosen;
    const double step = static_cast<double>(windows.size()) / static_cast<double>(options.windows);
    for (std::int64_t at = 0; at < options.windows; ++at)
      chosen.push_back(std::move(windows[static_cast<std::size_t>((static_cast<double>(at) + 0.5) * step)]));
    windows = std::move(chosen);
  }

  const at::NoGradGuard no_grad;
  double nats = 0;
  for (std::size_t next = 0; next < windows.size();) {
    std::vector<std::vector<std::int64_t>> inputs;
    std::vector<std::int64_t> targets;
    for (std::int64_t tokens = 0;
         next < windows.size() &&
         (inputs.empty() || tokens + static_cast<std::int64_t>(windows[next].size()) <= kBatchTokens);
         ++next) {
      const auto& window = windows[next];
      inputs.emplace_back(window.begin(), window.end() - 1);
      targets.insert(targets.end(), window.begin() + 1, window.end());
      tokens += static_cast<std::int64_t>(inputs.back().size());
    }
    const Tensor hidden = forward(model, pack_documents(inputs, model.device()));
    const Tensor wanted = at::tensor(targets, at::kLong).to(model.device());
    const Tensor log_probabilities =
        at::log_softmax(logits(model, hidden).to(at::kFloat), -1).gather(1, wanted.unsqueeze(1));
    nats -= log_probabilities.to(at::kDouble).sum().item<double>();
    for (const std::int64_t id : targets)
      result.bytes += static_cast<std::int64_t>(tokenizer.token_bytes(static_cast<TokenId>(id)).size());
    result.tokens += static_cast<std::int64_t>(targets.size());
    result.windows += static_cast<std::int64_t>(inputs.size());
    if (progress) progress(result.windows, static_cast<std::int64_t>(windows.size()));
  }
  result.nats = nats / static_cast<double>(result.tokens);
  result.bits_per_byte = nats / std::numbers::ln2 / static_cast<double>(result.bytes);
  return result;
}

}  // namespace k3::train
