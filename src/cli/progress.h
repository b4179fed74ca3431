// A line of progress on the terminal (stderr), rewritten in place; silent when stderr is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace k3::cli {

class ProgressLine {
 public:
  explicit ProgressLine(std::string label);
  ~ProgressLine();  // wipes the line
  void operator()(std::int64_t done_bytes, std::int64_t total_bytes);

 private:
  std::string label_;
  bool terminal_, shown_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace k3::cli
