// safetensors: any bytes either are refused with a one-line UserError or give tensors that lie within the file. Inputs
// that begin with an odd byte are a header text, to which length and data are added, because few random lengths are
// right.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

std::string with_length(const std::string& header, std::size_t data_bytes) {
  std::string file(8, '\0');
  for (std::size_t at = 0; at < 8; ++at) file[at] = static_cast<char>(header.size() >> (8 * at) & 255);
  return file + header + std::string(data_bytes, 'x');
}

void try_file(const std::string& file) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(file));
  std::size_t total = 0;
  for (const k3::TensorView& view : k3::parse_safetensors(bytes, "fuzz")) {
    if (!view.bytes.empty() &&
        (view.bytes.data() < bytes.data() || view.bytes.data() + view.bytes.size() > bytes.data() + bytes.size()))
      std::abort();
    if (static_cast<std::size_t>(view.elements() * k3::dtype_bits(view.dtype)) != view.bytes.size() * 8) std::abort();
    total += view.bytes.size();
  }
  if (total > bytes.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    try_file(data[0] % 2 == 0 ? input : with_length(input, data[0] / 2));
  } catch (const k3::UserError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
