// UTF-8 as bytes: reading one character, finding and replacing what is invalid. Each maximal invalid part becomes
// one U+FFFD (the Unicode recommendation, which Python's and Rust's lossy decoders follow too).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace k3 {

struct Utf8Char {
  char32_t point = 0;       // U+FFFD when invalid
  std::uint8_t length = 1;  // bytes to step over
  bool valid = true;
  bool cut = false;  // invalid only because the text ends inside the character
};

// The character at text[at]; `at` is inside the text.
Utf8Char utf8_at(std::string_view text, std::size_t at);

std::optional<std::size_t> find_invalid_utf8(std::string_view text);  // offset of the first invalid byte
std::string replace_invalid_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t point);

// How many bytes at the end of `text` are the beginning of a character that more bytes could complete (0 to 3).
std::size_t incomplete_utf8_tail(std::string_view text);

// Throws a UserError naming `source` and the offset unless `text` is valid UTF-8.
void require_utf8(std::string_view text, const std::string& source);

}  // namespace k3
