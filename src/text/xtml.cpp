#include "text/xtml.h"

namespace k3::xtml {
namespace {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) break;
    out += to;
    at = found + from.size();
  }
  return out;
}

}  // namespace

std::string escape_attribute(std::string_view value) {
  return replace_all(replace_all(value, "&", "&amp;"), "\"", "&quot;");
}
std::string unescape_attribute(std::string_view value) {
  return replace_all(replace_all(value, "&quot;", "\""), "&amp;", "&");
}

void Writer::add(std::string_view text, bool control) {
  if (!text.empty()) segments_.push_back({std::string(text), control});
}

void Writer::open(std::string_view tag, const Attributes& attributes) {
  control(kOpen);
  text(tag);
  for (const auto& [key, value] : attributes) {
    text(" " + key);
    text("=\"");
    text(escape_attribute(value));
    text("\"");
  }
  control(kSep);
}

void Writer::close(std::string_view tag) {
  control(kClose);
  text(tag);
  control(kSep);
}

void Writer::element(std::string_view tag, const Attributes& attributes, std::string_view body) {
  open(tag, attributes);
  text(body);
  close(tag);
}

void Writer::message(const Attributes& attributes, std::string_view body) {
  open("message", attributes);
  text(body);
  end_message();
}

void Writer::end_message() {
  close("message");
  control(kEndOfMessage);
}

}  // namespace k3::xtml
