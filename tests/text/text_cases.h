// Text cases: `=== name`, an input, a line `--- kind`, an expected text; the last line end before the next case does
// not belong to it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "support/files.h"

namespace k3::test {

struct TextCase {
  std::string name, input, kind, expected;
};

inline std::vector<TextCase> text_cases(const std::string& file) {
  const std::string text = "\n" + read_file(data(file));
  std::vector<TextCase> cases;
  for (std::size_t at = text.find("\n=== "); at != std::string::npos;) {
    const std::size_t next = text.find("\n=== ", at + 1);
    const std::string body =
        text.substr(at + 5, next == std::string::npos ? text.size() - 1 - (at + 5) : next - (at + 5));
    const std::size_t name_end = body.find('\n'), mark = body.find("\n--- "), kind_end = body.find('\n', mark + 1);
    if (name_end == std::string::npos || mark == std::string::npos)
      throw std::runtime_error(file + ": case without --- line: " + body.substr(0, name_end));
    TextCase one;
    one.name = body.substr(0, name_end);
    one.input = mark > name_end ? body.substr(name_end + 1, mark - name_end - 1) : std::string();
    one.kind = body.substr(mark + 5, kind_end - mark - 5);
    one.expected = kind_end == std::string::npos ? std::string() : body.substr(kind_end + 1);
    cases.push_back(one);
    at = next;
  }
  return cases;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace k3::test
