#include "text/unicode_classes.h"

#include <cstring>
#include <iterator>
#include <memory>

namespace k3 {
namespace {

struct Range {
  std::uint32_t first;  // code point; the range ends where the next one begins
  std::uint8_t classes;
};

constexpr Range kRanges[] = {
#include "text/unicode_table.inc"
};

constexpr std::uint32_t kCodePoints = 0x110000;

std::unique_ptr<std::uint8_t[]> expand() {
  auto table = std::make_unique<std::uint8_t[]>(kCodePoints);
  for (std::size_t index = 0; index < std::size(kRanges); ++index) {
    const std::uint32_t end = index + 1 < std::size(kRanges) ? kRanges[index + 1].first : kCodePoints;
    std::memset(table.get() + kRanges[index].first, kRanges[index].classes, end - kRanges[index].first);
  }
  return table;
}

}  // namespace

const std::uint8_t* char_classes() {
  static const std::unique_ptr<std::uint8_t[]> table = expand();
  return table.get();
}

}  // namespace k3
