// k3 quantize: routed experts of a checkpoint into packed MXFP4, or back.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "checkpoint/convert_experts.h"
#include "cli/commands.h"
#include "cli/progress.h"

namespace k3::cli {
namespace {

struct QuantizeOptions {
  std::string in, out;
  bool dequantize = false;
  double shard_gb = 5.0;
};

void quantize(const QuantizeOptions& options) {
  if (options.shard_gb < 0.001) throw_user("--shard-gb {}: must be at least 0.001", options.shard_gb);
  const auto start = std::chrono::steady_clock::now();
  ConvertReport report;
  {
    ProgressLine progress(options.dequantize ? "dequantizing" : "quantizing");
    report = convert_experts(options.in, options.out,
                             {.pack = !options.dequantize,
                              .max_shard_bytes = static_cast<std::int64_t>(options.shard_gb * 1e9),
                              .progress = std::ref(progress)});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: {} expert matrices {}, {:.3f} GB -> {:.3f} GB in {:.1f} s\n", options.out, report.matrices,
             options.dequantize ? "decoded to BF16" : "packed in MXFP4",
             static_cast<double>(report.bytes_before) * 1e-9, static_cast<double>(report.bytes_after) * 1e-9, seconds);
}

}  // namespace

void add_quantize(CLI::App& app) {
  const auto options = std::make_shared<QuantizeOptions>();
  CLI::App* command =
      app.add_subcommand("quantize", "pack the routed experts of a checkpoint in MXFP4, as the K3 release does");
  command->add_option("IN", options->in, "folder with config.json and safetensors")->required();
  command->add_option("OUT", options->out, "folder to make")->required();
  command->add_flag("--dequantize", options->dequantize, "the other way: MXFP4 experts to BF16 (exact)");
  command->add_option("--shard-gb", options->shard_gb, "largest file, in GB (default 5)");
  command->footer(
      "Examples:\n"
      "  k3 quantize my-model my-model-mxfp4                 BF16 or F32 experts to 4.25 bits a weight\n"
      "  k3 quantize --dequantize Kimi-K3 Kimi-K3-bf16       for programs that read only BF16\n"
      "Only routed experts change; attention, shared experts, embeddings, tokenizer and all other files are taken over "
      "byte for byte.\n"
      "Scale of 32 columns: 2^(floor(log2(max)) - 2); values round to the nearest code, ties to even, and saturate at "
      "6 times the scale.");
  command->callback([options] { quantize(*options); });
}

}  // namespace k3::cli
