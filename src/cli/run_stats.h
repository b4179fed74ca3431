// Times and memory of one generation, as `--stats` prints them.
#pragma once

#include <cstdint>
#include <string>

namespace k3::cli {

double seconds_since_start();       // since the command was started, loading of the program included
std::int64_t peak_memory_bytes();   // largest resident size of this process so far

class Stopwatch {
 public:
  Stopwatch() : begin_(seconds_since_start()) {}
  double seconds() const { return seconds_since_start() - begin_; }

 private:
  double begin_;
};

struct RunStats {
  std::int64_t prompt_tokens = 0, new_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;  // decode: from the first new token to the last
  double first_token_seconds = 0;                  // from the command, or from the question in a conversation
  double prefill_rate() const { return prefill_seconds > 0 ? static_cast<double>(prompt_tokens) / prefill_seconds : 0.0; }
  double decode_rate() const { return decode_seconds > 0 ? static_cast<double>(new_tokens - 1) / decode_seconds : 0.0; }
};
std::string stats_text(const RunStats& stats);

}  // namespace k3::cli
