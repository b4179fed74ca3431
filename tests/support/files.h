// Temporary folders, test data paths, and the expectation that bad input is refused with one helpful line.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace k3::test {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "k3-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path data(const std::string& name) { return std::filesystem::path(K3_TEST_DATA) / name; }

// `action` must throw a UserError of one line that contains every fragment.
template <class Action>
void expect_user_error(Action&& action, std::initializer_list<std::string> fragments) {
  try {
    action();
  } catch (const UserError& error) {
    const std::string message = error.what();
    for (const std::string& fragment : fragments)
      EXPECT_NE(message.find(fragment), std::string::npos) << "missing '" << fragment << "' in: " << message;
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "wanted a UserError, got: " << error.what();
    return;
  }
  ADD_FAILURE() << "wanted a UserError, nothing was thrown";
}

}  // namespace k3::test
