#include "base/error.h"

namespace k3 {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw std::logic_error(fmt::format("{} (internal check failed: {} at {}:{})", message, condition, file, line));
}

}  // namespace k3
