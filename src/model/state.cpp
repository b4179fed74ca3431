#include "model/state.h"

#include "base/error.h"
#include "ops/precision.h"

namespace k3 {
namespace {

Tensor slot_latent(const StatePool& pool, std::int64_t slot) {  // [mla_layers, length, dim]
  const std::int64_t length = pool.lengths[slot], layers = pool.latent_pages.size(0), dim = pool.latent_pages.size(3);
  if (length == 0) return at::zeros({layers, 0, dim}, pool.latent_pages.options());
  const Tensor pages = at::tensor(pool.pages_of[slot], at::kLong).to(pool.latent_pages.device());
  return pool.latent_pages.index_select(1, pages).reshape({layers, -1, dim}).narrow(1, 0, length);
}

}  // namespace

StatePool StatePool::make(const ModelConfig& config, std::int64_t slots, std::int64_t context_tokens, at::Device device,
                          at::ScalarType dtype) {
  const at::ScalarType state_type = dtype == at::kDouble ? at::kDouble : at::kFloat;
  const auto options = at::TensorOptions().device(device);
  const std::int64_t pages = slots * ((context_tokens + kPageTokens - 1) / kPageTokens);
  const KdaConfig& kda = config.kda;
  StatePool pool;
  pool.kda_state = at::zeros({config.kda_layers(), slots, kda.heads, kda.head_dim, kda.head_dim}, options.dtype(state_type));
  pool.conv_window = at::zeros({config.kda_layers(), slots, kda.conv_taps - 1, 3 * kda.channels()}, options.dtype(dtype));
  pool.latent_pages = at::zeros({config.mla_layers(), pages, kPageTokens, config.mla.kv_lora_rank + config.mla.rope_dim}, options.dtype(dtype));
  pool.pages_of.resize(slots);
  pool.lengths.assign(slots, 0);
  for (std::int64_t page = pages - 1; page >= 0; --page) pool.free_pages.push_back(page);
  return pool;
}

void StatePool::reserve(std::int64_t slot, std::int64_t tokens) {
  auto& pages = pages_of[slot];
  const std::int64_t wanted = (tokens + kPageTokens - 1) / kPageTokens;
  const std::int64_t missing = wanted - static_cast<std::int64_t>(pages.size());
  if (missing > static_cast<std::int64_t>(free_pages.size()))
    throw_user("the sequence needs {} tokens of context but the pool has room for {} more; allow a longer context or shorten the prompt", tokens,
               static_cast<std::int64_t>(free_pages.size() + pages.size()) * kPageTokens - lengths[slot]);
  for (std::int64_t page = 0; page < missing; ++page) {
    pages.push_back(free_pages.back());
    free_pages.pop_back();
  }
}

void StatePool::clear(std::int64_t slot) {
  kda_state.select(1, slot).zero_();
  conv_window.select(1, slot).zero_();
  auto& pages = pages_of[slot];
  while (!pages.empty()) {
    free_pages.push_back(pages.back());
    pages.pop_back();
  }
  lengths[slot] = 0;
}

SequenceState save_state(const StatePool& pool, std::int64_t slot) {
  return {pool.lengths[slot], pool.kda_state.select(1, slot).clone(), pool.conv_window.select(1, slot).clone(), slot_latent(pool, slot).clone()};
}

void restore_state(StatePool& pool, std::int64_t slot, const SequenceState& state) {
  pool.clear(slot);
  pool.reserve(slot, state.length);
  pool.kda_state.select(1, slot).copy_(state.kda_state);
  pool.conv_window.select(1, slot).copy_(state.conv_window);
  for (std::int64_t start = 0; start < state.length; start += kPageTokens) {
    const std::int64_t count = std::min(kPageTokens, state.length - start);
    pool.latent_pages.select(1, pool.pages_of[slot][start / kPageTokens]).narrow(1, 0, count).copy_(state.latent.narrow(1, start, count));
  }
  pool.lengths[slot] = state.length;
}

}  // namespace k3
