#include "train/tasks/random.h"

#include "base/error.h"

namespace k3::train {

namespace {

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

std::uint64_t Random::next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }

std::uint64_t hash_of(std::string_view content) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char byte : content) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  return mix(hash);
}

Split split_of(std::string_view content) { return hash_of(content) % 10 == 0 ? Split::heldout : Split::train; }

std::string fill(std::string_view pattern, Slots slots) {
  std::string out;
  out.reserve(pattern.size() + 32);
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '{') {
      out += pattern[at++];
      continue;
    }
    const std::size_t end = pattern.find('}', at);
    K3_CHECK(end != std::string_view::npos, "pattern '{}' has an open slot", pattern);
    const std::string_view name = pattern.substr(at + 1, end - at - 1);
    const std::pair<std::string_view, std::string_view>* found = nullptr;
    for (const auto& slot : slots)
      if (slot.first == name) found = &slot;
    K3_CHECK(found != nullptr, "pattern '{}' wants a slot '{}'", pattern, name);
    out += found->second;
    at = end + 1;
  }
  return out;
}

std::string capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

}  // namespace k3::train
