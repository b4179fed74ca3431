// Ctrl-C as a request: while an InterruptGuard lives, SIGINT sets a flag instead of ending the program.
#pragma once

#include <csignal>

namespace k3::cli {

class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool requested();
  static void forget();

 private:
  struct sigaction before_;
};

}  // namespace k3::cli
