// The program `k3`: one subcommand a file. Errors of the input end with one line and exit code 2, errors of the program with 1.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/version.h"

namespace {

using namespace k3::cli;

// In the order in which `k3 --help` lists them.
void add_commands(CLI::App& app) {
  add_chat(app);
  add_generate(app);
  add_logits(app);
  add_inspect(app);
  add_new(app);
  add_quantize(app);
  add_tokenize(app);
  add_render(app);
  add_train(app);
  add_plot(app);
  add_eval(app);
  add_data(app);
}

constexpr const char* kExamples =
    "Examples:\n"
    "  k3 chat \"What is 17 + 25?\"                      ask the bundled model one question\n"
    "  k3 chat                                         talk to it\n"
    "  k3 chat --model ~/Kimi-Linear-48B-A3B-Instruct  talk to the real one\n"
    "  k3 inspect --config configs/kimi-k3.json        what is inside Kimi K3\n"
    "  k3 train recipes/nano.toml                      train a model\n"
    "Each command explains itself with examples: k3 COMMAND --help\n"
    "In a checkout ./k3 test runs the tests, and ./k3 setup --help explains installing and building.";

bool is_command(const CLI::App& app, const std::string& word) {
  return !app.get_subcommands([&](const CLI::App* command) { return command->get_name() == word; }).empty();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"k3 trains, inspects and runs models of the Kimi K3 family.", "k3"};
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text, "version, commit, torch, CUDA and processor paths");
  app.get_formatter()->column_width(34);
  add_commands(app);
  if (argc > 1 && argv[1][0] != '-' && !is_command(app, argv[1])) {
    fmt::print(stderr, "k3: there is no command {}; `k3 --help` lists them\n", argv[1]);
    return 2;
  }
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::RuntimeError& end) {  // a command that chose its exit code and has said why
    return end.get_exit_code();
  } catch (const CLI::ParseError& error) {
    std::string command;
    for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
    fmt::print(stderr, "k3{}: {}; try `k3{} --help`\n", command, first_line(error.what()), command);
    return 2;
  } catch (const k3::UserError& error) {
    fmt::print(stderr, "k3: {}\n", first_line(error.what()));
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "k3: internal error: {}\n", first_line(error.what()));
    return 1;
  }
}
