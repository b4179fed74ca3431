#include "text/utf8.h"

#include <cstring>

#include "base/error.h"

namespace k3 {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// Offset of the first byte that is not ASCII, from `at` on; eight bytes a step.
std::size_t skip_ascii(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t bytes;
    std::memcpy(&bytes, text.data() + at, 8);
    if ((bytes & 0x8080808080808080ull) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Char utf8_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t offset) { return static_cast<unsigned char>(text[at + offset]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};
  // Well-formed sequences (Unicode table 3-7): the second byte's range depends on the lead, later ones are 80..BF.
  int length = 0;
  unsigned char low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) length = 2;
  else if (lead >= 0xE0 && lead <= 0xEF) length = 3;
  else if (lead >= 0xF0 && lead <= 0xF4) length = 4;
  else return {kReplacement, 1, false, false};
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  char32_t point = lead & (0xFF >> (length + 1));
  for (int index = 1; index < length; ++index) {
    if (at + index >= text.size()) return {kReplacement, static_cast<std::uint8_t>(index), false, true};
    const unsigned char next = byte(index);
    if (next < low || next > high) return {kReplacement, static_cast<std::uint8_t>(index), false, false};
    point = point << 6 | (next & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {point, static_cast<std::uint8_t>(length), true, false};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    const Utf8Char character = utf8_at(text, at);
    if (!character.valid) return at;
    at += character.length;
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t plain = skip_ascii(text, at);
    out.append(text, at, plain - at);
    if (plain == text.size()) break;
    const Utf8Char character = utf8_at(text, plain);
    if (character.valid) out.append(text, plain, character.length);
    else append_utf8(out, kReplacement);
    at = plain + character.length;
  }
  return out;
}

void append_utf8(std::string& out, char32_t point) {
  const auto add = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    add(point);
  } else if (point < 0x800) {
    add(0xC0 | point >> 6), add(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    add(0xE0 | point >> 12), add(0x80 | (point >> 6 & 0x3F)), add(0x80 | (point & 0x3F));
  } else {
    add(0xF0 | point >> 18), add(0x80 | (point >> 12 & 0x3F)), add(0x80 | (point >> 6 & 0x3F)),
        add(0x80 | (point & 0x3F));
  }
}

std::size_t incomplete_utf8_tail(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const std::size_t at = text.size() - back;
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;  // inside a character: look further back
    const Utf8Char character = utf8_at(text, at);
    return character.cut && character.length == back ? back : 0;
  }
  return 0;
}

void require_utf8(std::string_view text, const std::string& source) {
  if (const auto at = find_invalid_utf8(text))
    throw_user("{}: byte {} (0x{:02x}) is not valid UTF-8; convert the text to UTF-8", source, *at,
               static_cast<unsigned char>(text[*at]));
}

}  // namespace k3
