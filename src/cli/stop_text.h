// Stop strings in streamed text: passes text through, but holds back an end that could be the beginning of a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace k3::cli {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  std::string push(std::string_view piece);  // what may be shown now; nothing more once stopped
  std::string finish();                      // what was held back when the text ends without a stop
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace k3::cli
