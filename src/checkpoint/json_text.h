// JSON text of foreign origin into a tree: one-line errors with the place, repeated keys refused (a reader that keeps
// one of them in silence would hide a damaged file). For the .cpp files of this room.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace k3 {

nlohmann::json parse_json_tree(std::string_view text, const std::string& name_for_errors);

}  // namespace k3
