// Rank files: any bytes either are refused with a UserError or give a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/ranks.h"
#include "text/tokenizer.h"

namespace {

std::string byte_ranks() {
  std::string file;
  for (int value = 0; value < 256; ++value)
    file += fmt::format("{} {}\n", k3::encode_base64(std::string(1, static_cast<char>(value))), value);
  return file;
}

void try_file(const std::string& file) {
  try {
    const k3::Tokenizer tokenizer = k3::Tokenizer::parse(file, "fuzz");
    const std::string text = "What's 17 + 25?\n\xE4\xB8\xAD <|open|>";
    if (tokenizer.decode(tokenizer.encode(text)) != text) std::abort();
  } catch (const k3::UserError&) {}
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string bytes = byte_ranks();
  const std::string input(reinterpret_cast<const char*>(data), size);
  try_file(input);
  try_file(bytes + input);  // past the first 256 lines
  return 0;
}
