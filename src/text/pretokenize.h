// Cuts text into the pieces inside which BPE merges, without a regex engine. The pattern, first alternative that
// matches wins:
//   1  [\p{Han}]+
//   2  [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   3  [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   4  \p{N}{1,3}
//   5   ?[^\s\p{L}\p{N}]+[\r\n]*
//   6  \s*[\r\n]+
//   7  \s+(?!\S)
//   8  \s+
#pragma once

#include <cstddef>
#include <string_view>

namespace k3 {

// End of the piece that starts at text[at]. The text is valid UTF-8 and `at` a character's first byte.
std::size_t piece_end(std::string_view text, std::size_t at);

// The reference first cuts huge inputs: every 400,000 characters, and inside that wherever 25,000 characters in a
// row are all whitespace or all something else. Returns the end of the part that starts at `at`; each part is
// encoded on its own.
class HugeInputCuts {
 public:
  explicit HugeInputCuts(std::string_view text) : text_(text) {}
  std::size_t next(std::size_t at);

 private:
  std::string_view text_;
  std::size_t window_end_ = 0;  // end of the current 400,000 characters
};

}  // namespace k3
