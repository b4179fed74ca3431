// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every compiler and machine, which the standard
// distributions do not promise. Also the hash that decides whether a problem is held out, and slot filling for sentence
// patterns.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/tasks/generator.h"

namespace k3::train {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + below(high - low + 1);
  }  // both ends included
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }
  template <class List>
  const auto& pick(const List& list) {
    return *(std::begin(list) + below(static_cast<std::int64_t>(std::size(list))));
  }
  template <class Value>
  void shuffle(std::vector<Value>& list) {
    for (std::int64_t at = static_cast<std::int64_t>(list.size()) - 1; at > 0; --at)
      std::swap(list[static_cast<std::size_t>(at)], list[static_cast<std::size_t>(below(at + 1))]);
  }

 private:
  std::uint64_t state_;
};

// FNV-1a, mixed; a problem is held out when its content hashes to 0 of 10.
std::uint64_t hash_of(std::string_view content);
Split split_of(std::string_view content);

// fill("{N} has {a} apples", {{"N", "Tom"}, {"a", "17"}}); a slot without a value is an internal error.
using Slots = std::initializer_list<std::pair<std::string_view, std::string_view>>;
std::string fill(std::string_view pattern, Slots slots);

std::string capitalized(std::string text);

}  // namespace k3::train
