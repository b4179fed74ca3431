#include "model/generate.h"

#include <algorithm>

#include "base/error.h"

namespace k3 {
namespace {

constexpr std::int64_t kStepTokens = 4096;  // of one forward call when many prompts are read together

// Packs one piece of ids for each slot behind what the slot holds.
class RowPacker {
 public:
  void add(std::int64_t slot, std::int64_t context, std::span<const std::int64_t> ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    batch_.plan.starts.push_back(static_cast<std::int64_t>(ids_.size()));
    batch_.plan.contexts.push_back(context);
    batch_.plan.slots.push_back(slot);
  }
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids_.size()); }
  ForwardBatch finish(at::Device device) {
    batch_.ids = at::tensor(ids_, at::kLong).to(device);
    return std::move(batch_);
  }

 private:
  std::vector<std::int64_t> ids_;
  ForwardBatch batch_;
};

Tensor last_logits(const Model& model, const ForwardBatch& batch, StatePool& pool) {  // [rows, vocab]
  const Tensor hidden = forward(model, batch, &pool);
  return logits(model, hidden.index_select(0, at::tensor(last_tokens(batch.plan), at::kLong).to(hidden.device())));
}

struct Sequence {
  std::size_t prompt = 0;
  std::int64_t slot = 0;
  std::vector<std::int64_t> ids;  // prompt and what was generated
  std::int64_t fed = 0;           // of them held in the slot
};

}  // namespace

void check_prompt(const ModelConfig& config, std::span<const std::int64_t> ids, std::int64_t max_tokens) {
  if (ids.empty()) throw_user("the prompt is empty; give at least one token");
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= config.vocab)
      throw_user("token id {} at position {} is outside the vocabulary (0 to {})", ids[i], i, config.vocab - 1);
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length + max_tokens > config.max_context)
    throw_user("the prompt of {} tokens and {} new tokens do not fit into the context of {}; shorten the prompt or lower --max-tokens", length,
               max_tokens, config.max_context);
}

Tensor prefill(const Model& model, StatePool& pool, std::int64_t slot, std::span<const std::int64_t> ids, std::int64_t chunk_tokens) {
  K3_CHECK(!ids.empty() && chunk_tokens > 0, "prefill of {} ids in chunks of {}", ids.size(), chunk_tokens);
  const c10::InferenceMode inference;
  while (static_cast<std::int64_t>(ids.size()) > chunk_tokens) {
    forward(model, continue_row(ids.first(chunk_tokens), pool.lengths[slot], slot, model.device()), &pool);
    ids = ids.subspan(chunk_tokens);
  }
  return last_logits(model, continue_row(ids, pool.lengths[slot], slot, model.device()), pool)[0];
}

Tensor decode_step(const Model& model, StatePool& pool, std::span<const std::int64_t> slots, std::span<const std::int64_t> ids) {
  K3_CHECK(slots.size() == ids.size() && !ids.empty(), "{} slots but {} ids", slots.size(), ids.size());
  const c10::InferenceMode inference;
  RowPacker rows;
  for (std::size_t row = 0; row < ids.size(); ++row) rows.add(slots[row], pool.lengths[slots[row]], ids.subspan(row, 1));
  const ForwardBatch batch = rows.finish(model.device());
  return logits(model, forward(model, batch, &pool));
}

void continue_slot(const Model& model, StatePool& pool, std::int64_t slot, Tensor row, const SamplingOptions& sampling, std::int64_t top,
                   const std::function<bool(const Sampled&)>& accept) {
  while (true) {
    const Sampled next = sample(row, sampling, 0, pool.lengths[slot], top);
    if (!accept(next)) return;
    row = decode_step(model, pool, std::span(&slot, 1), std::span(&next.id, 1))[0];
  }
}

std::vector<std::vector<std::int64_t>> generate_batch(const Model& model, std::span<const std::vector<std::int64_t>> prompts,
                                                      const GenerateOptions& options, std::int64_t slots,
                                                      const std::function<void(std::int64_t)>& progress) {
  const c10::InferenceMode inference;
  check_sampling(options.sampling);
  std::int64_t longest = 0;
  for (const auto& prompt : prompts) {
    check_prompt(model.config, prompt, options.max_tokens);
    longest = std::max(longest, static_cast<std::int64_t>(prompt.size()) + options.max_tokens);
  }
  std::vector<std::vector<std::int64_t>> results(prompts.size());
  if (prompts.empty() || options.max_tokens <= 0) return results;
  slots = std::min<std::int64_t>(slots, static_cast<std::int64_t>(prompts.size()));
  StatePool pool = StatePool::make(model.config, slots, longest, model.device(), model.dtype());
  std::vector<std::int64_t> free_slots;
  for (std::int64_t slot = slots - 1; slot >= 0; --slot) free_slots.push_back(slot);

  std::vector<Sequence> running;
  std::size_t next = 0;
  std::int64_t finished = 0;
  while (next < prompts.size() || !running.empty()) {
    while (next < prompts.size() && !free_slots.empty()) {
      running.push_back({.prompt = next, .slot = free_slots.back(), .ids = prompts[next], .fed = 0});
      free_slots.pop_back();
      ++next;
    }
    // One call holds the pending ids of every sequence: one token where it decodes, a piece of the prompt where it is still read.
    RowPacker rows;
    std::vector<std::size_t> in_batch;
    for (std::size_t i = 0; i < running.size(); ++i) {
      Sequence& sequence = running[i];
      const std::span<const std::int64_t> pending = std::span<const std::int64_t>(sequence.ids).subspan(sequence.fed);
      const auto take = std::min<std::int64_t>(static_cast<std::int64_t>(pending.size()), kStepTokens - rows.tokens());
      if (take <= 0) break;
      rows.add(sequence.slot, sequence.fed, pending.first(take));
      sequence.fed += take;
      in_batch.push_back(i);
    }
    const Tensor scores = last_logits(model, rows.finish(model.device()), pool);
    const Tensor greedy = options.sampling.temperature == 0.0 ? scores.argmax(1).to(at::kCPU) : Tensor();
    for (std::size_t row = 0; row < in_batch.size(); ++row) {
      Sequence& sequence = running[in_batch[row]];
      if (sequence.fed < static_cast<std::int64_t>(sequence.ids.size())) continue;  // its prompt is not read to the end yet
      const auto index = static_cast<std::int64_t>(row);
      const std::int64_t id = greedy.defined() ? greedy.const_data_ptr<std::int64_t>()[row]
                                               : sample(scores[index], options.sampling, sequence.prompt, sequence.ids.size()).id;
      sequence.ids.push_back(id);
      std::vector<std::int64_t>& result = results[sequence.prompt];
      result.push_back(id);
      const bool stopped = std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end();
      if (stopped || static_cast<std::int64_t>(result.size()) >= options.max_tokens) {
        pool.clear(sequence.slot);
        free_slots.push_back(sequence.slot);
        sequence.ids.clear();  // marks it finished
        ++finished;
        if (progress) progress(finished);
      }
    }
    std::erase_if(running, [](const Sequence& sequence) { return sequence.ids.empty(); });
  }
  return results;
}

}  // namespace k3
