#include "cli/run_stats.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace k3::cli {
namespace {

double boot_seconds() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Field 22 of /proc/self/stat: when the process began, in clock ticks since boot. The name in field 2 may hold spaces.
double start_of_process() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  const double ticks = std::strtod(field.c_str(), nullptr);
  const double begin = ticks / static_cast<double>(sysconf(_SC_CLK_TCK)), now = boot_seconds();
  return ticks > 0 && begin <= now ? begin : now;
}

}  // namespace

double seconds_since_start() {
  static const double begin = start_of_process();
  return boot_seconds() - begin;
}

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::string stats_text(const RunStats& stats) {
  return fmt::format("prefill {} tokens, {:.1f} tokens/s | decode {} tokens, {:.1f} tokens/s | first token after {:.2f} s | peak memory {:.0f} MiB",
                     stats.prompt_tokens, stats.prefill_rate(), stats.new_tokens, stats.decode_rate(), stats.first_token_seconds,
                     static_cast<double>(peak_memory_bytes()) / 1048576.0);
}

}  // namespace k3::cli
