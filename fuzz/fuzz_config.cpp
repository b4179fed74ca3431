// config.json: any bytes either are refused with a one-line UserError or give a config that is written and read again
// unchanged, and whose sizes can be summed up. Half of the inputs are an edit of a sound config, because random bytes
// are seldom JSON: the input is then "key=value" lines.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/published.h"
#include "checkpoint/random_checkpoint.h"

namespace {

void try_config(const std::string& text) {
  const k3::ModelConfig config = k3::parse_config(text, "fuzz");
  if (!(k3::parse_config(k3::write_config(config), "again") == config)) std::abort();
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> found(1);
  for (const char c : text) {
    if (c == '\n') found.emplace_back();
    else found.back() += c;
  }
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  static const std::string k3_text = k3::write_config(k3::kimi_k3_config()),
                           linear_text = k3::write_config(k3::kimi_linear_48b_config());
  try {
    if (data[0] % 2 == 0) try_config(input);
    else try_config(k3::with_settings(data[0] % 4 == 1 ? k3_text : linear_text, lines(input)));
  } catch (const k3::UserError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
