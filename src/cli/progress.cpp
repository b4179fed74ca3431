#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace k3::cli {

ProgressLine::ProgressLine(std::string label)
    : label_(std::move(label)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

ProgressLine::~ProgressLine() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void ProgressLine::operator()(std::int64_t done_bytes, std::int64_t total_bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count(), done = static_cast<double>(done_bytes),
               total = static_cast<double>(total_bytes);
  fmt::print(stderr, "\r\033[K{}: {:.1f} of {:.1f} GB, {:.0f} MB/s, {:.0f} s left", label_, done * 1e-9, total * 1e-9,
             done * 1e-6 / seconds, (total - done) / done * seconds);
  std::fflush(stderr);
}

}  // namespace k3::cli
