// What a sequence remembers between calls: KDA states, convolution windows and MLA latents. Nothing else carries history, so
// copying a sequence, parking it or sending it elsewhere are operations on these types only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor.h"
#include "checkpoint/config.h"

namespace k3 {

inline constexpr std::int64_t kPageTokens = 64;  // tokens of one MLA page

// Slots with fixed addresses. Slot s owns the pages pages_of(s) of every MLA layer; pages are added as the context grows.
struct StatePool {
  Tensor kda_state;     // fp32 (fp64 when the model is) [kda_layers, slots, heads, key_dim, value_dim]
  Tensor conv_window;   // model dtype [kda_layers, slots, taps - 1, 3 * channels]; q, k, v side by side; oldest first
  Tensor latent_pages;  // model dtype [mla_layers, pages, kPageTokens, kv_lora + rope_dim]; normed latent, then the raw shared key
  std::vector<std::vector<std::int64_t>> pages_of;  // [slots] page numbers in order of position
  std::vector<std::int64_t> free_pages;             // taken from the back
  std::vector<std::int64_t> lengths;                // [slots] tokens held

  static StatePool make(const ModelConfig& config, std::int64_t slots, std::int64_t context_tokens, at::Device device,
                        at::ScalarType dtype);
  std::int64_t slots() const { return static_cast<std::int64_t>(lengths.size()); }
  void reserve(std::int64_t slot, std::int64_t tokens);  // pages for that many tokens in all; UserError when the pool is full
  void clear(std::int64_t slot);                         // back to an empty sequence, pages returned
};

// A slot lifted out of the pool: self-contained, on any device, restorable into any free slot of an equal pool.
struct SequenceState {
  std::int64_t length = 0;
  Tensor kda_state;    // [kda_layers, heads, key_dim, value_dim]
  Tensor conv_window;  // [kda_layers, taps - 1, 3 * channels]
  Tensor latent;       // [mla_layers, length, kv_lora + rope_dim]
};
SequenceState save_state(const StatePool& pool, std::int64_t slot);
void restore_state(StatePool& pool, std::int64_t slot, const SequenceState& state);

}  // namespace k3
