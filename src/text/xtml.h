// The elements that XTML is made of, as id segments, and the escaping of attribute values.
//   open(tag, attributes)   <|open|> tag ( key="value")* <|sep|>
//   close(tag)              <|close|> tag <|sep|>
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat.h"

namespace k3::xtml {

inline constexpr std::string_view kOpen = "<|open|>", kClose = "<|close|>", kSep = "<|sep|>",
                                  kEndOfMessage = "<|end_of_msg|>";

std::string escape_attribute(std::string_view value);    // & first, then "
std::string unescape_attribute(std::string_view value);  // &quot; first, then &amp;

using Attributes = std::vector<std::pair<std::string, std::string>>;

class Writer {
 public:
  void open(std::string_view tag, const Attributes& attributes = {});
  void close(std::string_view tag);
  void text(std::string_view text) { add(text, false); }
  void control(std::string_view text) { add(text, true); }  // special matching on
  void element(std::string_view tag, const Attributes& attributes, std::string_view body);
  void message(const Attributes& attributes, std::string_view body);
  void end_message();
  std::vector<Segment> take() { return std::move(segments_); }

 private:
  void add(std::string_view text, bool control);  // empty pieces are dropped
  std::vector<Segment> segments_;
};

std::vector<Segment> render(const Conversation& conversation);

}  // namespace k3::xtml
