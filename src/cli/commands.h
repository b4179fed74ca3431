// Every subcommand of k3: one function a file of the same name adds it to the program.
#pragma once

#include <CLI/CLI.hpp>

namespace k3::cli {

void add_inspect(CLI::App& app);
void add_new(CLI::App& app);
void add_quantize(CLI::App& app);
void add_tokenize(CLI::App& app);  // tokenize, detokenize
void add_render(CLI::App& app);
void add_generate(CLI::App& app);
void add_chat(CLI::App& app);
void add_logits(CLI::App& app);
void add_train(CLI::App& app);
void add_plot(CLI::App& app);
void add_eval(CLI::App& app);
void add_data(CLI::App& app);  // data generators, vocabulary training

}  // namespace k3::cli
