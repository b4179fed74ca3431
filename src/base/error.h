// Two kinds of failure. UserError: the input is at fault; one line says which file or field and what to do; the program exits with 2.
// K3_CHECK: the program is at fault; the line names the condition and the place.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace k3 {

struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// throw_user("{}: field {} must be positive; fix the config", path, field)
template <class... Args>
[[noreturn]] void throw_user(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace k3

#define K3_CHECK(condition, ...)                                                                 \
  do {                                                                                           \
    if (!(condition)) ::k3::check_failed(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (0)
