// Token ids written as text: "1,2,3", with commas, spaces or line breaks between.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace k3::cli {

std::vector<std::int64_t> parse_ids(std::string_view text, const std::string& name_for_errors);  // UserError at the first thing that is no id

}  // namespace k3::cli
