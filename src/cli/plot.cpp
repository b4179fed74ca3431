// k3 plot: the curves of a training run as an SVG picture.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/files.h"
#include "cli/commands.h"
#include "train/plot.h"

namespace k3::cli {
namespace {

struct Arguments {
  std::string run, out;
};

}  // namespace

void add_plot(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("plot", "draw the curves of a training run");
  command->add_option("run", arguments->run, "folder of the run, with metrics.jsonl")->required();
  command->add_option("--out", arguments->out, "picture to write (default: RUN/curves.svg)");
  command->footer(
      "Examples:\n"
      "  k3 plot runs/nano                       loss, validation, learning rate, expert balance in "
      "runs/nano/curves.svg\n"
      "  k3 plot runs/nano --out docs/nano.svg   the same elsewhere");
  command->callback([arguments] {
    const std::filesystem::path run = arguments->run;
    const std::filesystem::path out =
        arguments->out.empty() ? run / "curves.svg" : std::filesystem::path(arguments->out);
    write_file_atomic(out, train::plot_svg(train::read_metrics(run), run.filename().string()));
    fmt::print("{}\n", out.string());
  });
}

}  // namespace k3::cli
