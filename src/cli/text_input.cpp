#include "cli/text_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "cli/default_model.h"

namespace k3::cli {

void add_tokenizer_options(CLI::App& command, TokenizerOptions& options) {
  auto* model =
      command
          .add_option("--model", options.model, "folder of a model (default: $K3_MODEL, then the bundled models/nano)")
          ->type_name("DIR");
  command.add_option("--tokenizer", options.tokenizer, "folder that holds tiktoken.model and needs no weights")
      ->type_name("DIR")
      ->excludes(model);
}

Tokenizer open_tokenizer(const TokenizerOptions& options) {
  if (!options.tokenizer.empty()) return Tokenizer::load(options.tokenizer);
  ModelOptions model;
  model.model = options.model;
  return Tokenizer::load(model_folder(model));
}

std::string read_input(const std::string& file) {
  if (!file.empty() && file != "-") return read_file(file);
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_user("standard input: cannot be read: {}", std::strerror(errno));
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

void print_text(std::string_view text) {
  bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (::isatty(STDOUT_FILENO) != 0 && !text.ends_with('\n')) written = std::fputc('\n', stdout) != EOF && written;
  if (std::fflush(stdout) != 0 || !written) throw_user("standard output: writing failed: {}", std::strerror(errno));
}

std::string ids_line(const std::vector<TokenId>& ids) { return fmt::format("{}\n", fmt::join(ids, " ")); }

}  // namespace k3::cli
