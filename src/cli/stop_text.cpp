#include "cli/stop_text.h"

#include <algorithm>
#include <utility>

namespace k3::cli {

std::string StopText::push(std::string_view piece) {
  if (stopped_) return "";
  held_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::exchange(held_, "");
  }
  std::size_t keep = 0;  // longest end of the text that begins a stop string
  for (const std::string& stop : stops_)
    for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length)
      if (held_.compare(held_.size() - length, length, stop, 0, length) == 0) keep = length;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopText::finish() { return stopped_ ? "" : std::exchange(held_, ""); }

}  // namespace k3::cli
