// For every code point the classes that the pre-tokenisation pattern distinguishes (Unicode 16.0, as in tiktoken's
// Rust regex engine). The table is expanded once from the ranges of unicode_table.inc: one byte a code point, so a
// look-up is one load.
#pragma once

#include <cstdint>

namespace k3 {

enum CharClass : std::uint8_t {
  kHan = 1,      // Script=Han
  kUpper = 2,    // Lu Lt Lm Lo M, not Han
  kLower = 4,    // Ll Lm Lo M, not Han
  kLetter = 8,   // L
  kNumber = 16,  // N
  kSpace = 32,   // White_Space
  kNewline = 64  // CR, LF
};

// Classes of all 0x110000 code points.
const std::uint8_t* char_classes();

}  // namespace k3
