// The token loop on top of forward(): prefill, one decode step, and batched continuation of many prompts. Ids only; text belongs
// to the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/sampler.h"

namespace k3 {

// Feeds ids (at least one) to a slot, in chunks so that activations stay small; -> logits [vocab] of the last one.
Tensor prefill(const Model& model, StatePool& pool, std::int64_t slot, std::span<const std::int64_t> ids, std::int64_t chunk_tokens = 1024);

// One token for each slot; -> logits [slots, vocab].
Tensor decode_step(const Model& model, StatePool& pool, std::span<const std::int64_t> slots, std::span<const std::int64_t> ids);

// Continues one slot whose last logits are given. `accept` sees every new token and says whether to go on; the last token is not
// fed, so the slot then holds everything before it. Positions count from the start of the sequence.
void continue_slot(const Model& model, StatePool& pool, std::int64_t slot, Tensor row, const SamplingOptions& sampling, std::int64_t top,
                   const std::function<bool(const Sampled&)>& accept);

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = 256;
  std::vector<std::int64_t> stop_ids;  // ends a sequence; the stop id itself is part of the result
};

// Continues every prompt until a stop id or max_tokens; -> the new ids of each. Sequences share `slots` slots of a pool made here
// and enter as soon as one is free; the result does not depend on `slots`. Each prompt samples from its own stream (its index).
// Prompts must not be empty and must fit, with max_tokens, into the model's context. `progress` gets the number of finished prompts.
std::vector<std::vector<std::int64_t>> generate_batch(const Model& model, std::span<const std::vector<std::int64_t>> prompts,
                                                      const GenerateOptions& options, std::int64_t slots = 32,
                                                      const std::function<void(std::int64_t)>& progress = {});

// UserError when ids are empty, outside the vocabulary, or with max_tokens longer than the context.
void check_prompt(const ModelConfig& config, std::span<const std::int64_t> ids, std::int64_t max_tokens);

}  // namespace k3
