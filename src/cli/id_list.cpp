#include "cli/id_list.h"

#include <charconv>

#include "base/error.h"

namespace k3::cli {

std::vector<std::int64_t> parse_ids(std::string_view text, const std::string& name_for_errors) {
  constexpr std::string_view between = ", \t\r\n[]";
  std::vector<std::int64_t> ids;
  for (std::size_t at = text.find_first_not_of(between); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(between, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    std::int64_t id = 0;
    const auto [rest, error] = std::from_chars(word.begin(), word.end(), id);
    if (error != std::errc() || rest != word.end())
      throw_user("{}: `{}` is not a token id; write numbers with commas between, like 1,2,3", name_for_errors, word.substr(0, 40));
    ids.push_back(id);
    at = text.find_first_not_of(between, end);
  }
  return ids;
}

}  // namespace k3::cli
