#include "cli/interrupt.h"

#include <atomic>

namespace k3::cli {
namespace {
std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");
}  // namespace

InterruptGuard::InterruptGuard() {
  forget();
  struct sigaction action {};
  action.sa_handler = [](int) { flag.store(true); };
  sigemptyset(&action.sa_mask);  // without SA_RESTART: a waiting read returns
  sigaction(SIGINT, &action, &before_);
}

InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &before_, nullptr); }
bool InterruptGuard::requested() { return flag.load(); }
void InterruptGuard::forget() { flag.store(false); }

}  // namespace k3::cli
