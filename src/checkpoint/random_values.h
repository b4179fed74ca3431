// Random numbers addressed by (key, position): any piece of a tensor can be made on its own, by any thread, with the
// same result.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace k3 {

std::uint64_t random_key(std::uint64_t seed, std::string_view name);      // of one tensor
std::uint64_t random_bits(std::uint64_t key, std::uint64_t position);     // 64 bits
double random_uniform(std::uint64_t key, std::uint64_t position);         // in (0, 1), steps of 2^-53

// Standard normal values from 16 bits each, through the inverse distribution function at the middle of 65,536 equal
// steps: largest 4.3. Good enough for weights and as fast as memory. `first` is the position of out[0] and must be a
// multiple of 4.
void random_normal(std::uint64_t key, std::uint64_t first, double deviation, std::span<float> out);
void random_normal_bf16(std::uint64_t key, std::uint64_t first, double deviation,
                        std::span<std::uint16_t> out);  // round to nearest even

}  // namespace k3
