#include "text/pretokenize.h"

#include <algorithm>
#include <cstdint>

#include "text/unicode_classes.h"

namespace k3 {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), classes_(char_classes()) {}

  bool at_end(std::size_t at) const { return at >= text_.size(); }

  // Classes of the character at `at` and where it ends. The text is valid, so the lead byte alone tells the length.
  std::uint8_t classes_at(std::size_t at, std::size_t& end) const {
    const auto byte = [&](std::size_t offset) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(text_[at + offset]));
    };
    const std::uint32_t lead = byte(0);
    if (lead < 0x80) {
      end = at + 1;
      return classes_[lead];
    }
    if (lead < 0xE0) {
      end = at + 2;
      return classes_[(lead & 0x1F) << 6 | (byte(1) & 0x3F)];
    }
    if (lead < 0xF0) {
      end = at + 3;
      return classes_[(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)];
    }
    end = at + 4;
    return classes_[(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F)];
  }

  // End of the run of characters from `at` on that have one of the classes.
  std::size_t run(std::size_t at, std::uint8_t wanted) const {
    std::size_t end = at;
    while (!at_end(at) && (classes_at(at, end) & wanted) != 0) at = end;
    return at;
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d)? : its end, or `at`. Case-insensitive s is also U+017F.
  std::size_t contraction(std::size_t at) const {
    if (at + 1 >= text_.size() || text_[at] != '\'') return at;
    const auto lower = [this](std::size_t where) {
      return where < text_.size() ? static_cast<char>(text_[where] | 0x20) : '\0';
    };
    const char first = lower(at + 1), second = lower(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
      return at + 3;
    if (text_.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
    return at;
  }

  // A*B+ of alternative 2: A* gives characters back until B+ gets at least one.
  std::size_t upper_then_lower(std::size_t at) const {
    std::size_t end = at, last_lower_end = kNone;
    std::uint8_t classes = 0;
    while (!at_end(at) && ((classes = classes_at(at, end)) & kUpper) != 0) {
      if ((classes & kLower) != 0) last_lower_end = end;
      at = end;
    }
    const std::size_t lower_end = run(at, kLower);
    return lower_end > at ? lower_end : last_lower_end;
  }

  // A+B* of alternative 3.
  std::size_t upper_only(std::size_t at) const {
    const std::size_t upper_end = run(at, kUpper);
    return upper_end > at ? run(upper_end, kLower) : kNone;
  }

  // Alternatives 2 and 3. `prefix_end` is past the one optional character in front, or `at` when there can be none.
  std::size_t word(std::size_t at, std::size_t prefix_end) const {
    std::size_t end = upper_then_lower(prefix_end);
    if (end == kNone && prefix_end != at) end = upper_then_lower(at);
    if (end == kNone) end = upper_only(prefix_end);
    if (end == kNone && prefix_end != at) end = upper_only(at);
    return end == kNone ? kNone : contraction(end);
  }

  std::size_t numbers(std::size_t at) const {
    std::size_t end = at;
    for (int count = 0; count < 3 && !at_end(at) && (classes_at(at, end) & kNumber) != 0; ++count) at = end;
    return at;
  }

  // Alternative 5 without its space: anything but whitespace, letters and numbers, then line ends.
  std::size_t symbols(std::size_t at) const {
    const std::size_t start = at;
    std::size_t end = at;
    while (!at_end(at) && (classes_at(at, end) & (kSpace | kLetter | kNumber)) == 0) at = end;
    return at > start ? run(at, kNewline) : kNone;
  }

  // Alternatives 6 to 8 on the whitespace run from `at` on.
  std::size_t whitespace(std::size_t at) const {
    std::size_t position = at, end = at, last_start = at, after_newline = kNone;
    std::uint8_t classes = 0;
    while (!at_end(position) && ((classes = classes_at(position, end)) & kSpace) != 0) {
      if ((classes & kNewline) != 0) after_newline = end;
      last_start = position;
      position = end;
    }
    if (after_newline != kNone) return after_newline;
    const bool followed = !at_end(position);
    return followed && last_start > at ? last_start : position;  // leave the last one to what follows
  }

 private:
  std::string_view text_;
  const std::uint8_t* classes_;
};

// Python's str.isspace, which the reference cuts by: White_Space and the four separators 1C..1F.
bool is_python_space(std::uint8_t classes, unsigned char first_byte) {
  return (classes & kSpace) != 0 || (first_byte >= 0x1C && first_byte <= 0x1F);
}

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t at) {
  const Scanner scan(text);
  std::size_t end = at;
  const std::uint8_t classes = scan.classes_at(at, end);
  if ((classes & kHan) != 0) return scan.run(end, kHan);
  const bool may_prefix = (classes & (kLetter | kNumber | kNewline)) == 0;
  if (const std::size_t word = scan.word(at, may_prefix ? end : at); word != kNone) return word;
  if ((classes & kNumber) != 0) return scan.numbers(at);
  const std::size_t symbols = scan.symbols(text[at] == ' ' ? at + 1 : at);
  if (symbols != kNone) return symbols;
  return scan.whitespace(at);
}

std::size_t HugeInputCuts::next(std::size_t at) {
  constexpr std::size_t window_characters = 400'000, same_characters = 25'000;
  const Scanner scan(text_);
  std::size_t end = at;
  if (at >= window_end_) {
    if (text_.size() - at <= same_characters)
      return window_end_ = text_.size();  // bytes bound characters: nothing to cut
    for (std::size_t count = 0; count < window_characters && end < text_.size(); ++count) scan.classes_at(end, end);
    window_end_ = end;
  }
  std::size_t position = at, run = 0;
  bool run_is_space = false;
  while (position < window_end_) {
    const bool is_space = is_python_space(scan.classes_at(position, end), static_cast<unsigned char>(text_[position]));
    run = run > 0 && is_space == run_is_space ? run + 1 : 1;
    if (run > same_characters) return position;
    run_is_space = is_space;
    position = end;
  }
  return window_end_;
}

}  // namespace k3
