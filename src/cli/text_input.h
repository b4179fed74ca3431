// Where the text commands (tokenize, detokenize, render) find their tokenizer and their input.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace k3::cli {

struct TokenizerOptions {
  std::string model, tokenizer;  // folders; both empty: the default model
};
void add_tokenizer_options(CLI::App& command, TokenizerOptions& options);
Tokenizer open_tokenizer(const TokenizerOptions& options);

std::string read_input(const std::string& file);  // "-" or "" is standard input
void print_text(std::string_view text);           // the exact bytes; a line end follows only on a terminal
std::string ids_line(const std::vector<TokenId>& ids);

}  // namespace k3::cli
