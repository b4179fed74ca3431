// Conversation JSON: any bytes either are refused with a UserError or render, in both layouts.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "text/chat.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  for (const auto format : {k3::ChatFormat::xtml, k3::ChatFormat::im}) {
    try {
      (void)k3::to_text(k3::render(k3::parse_conversation(input, "fuzz"), format));
    } catch (const k3::UserError&) {}
  }
  return 0;
}
