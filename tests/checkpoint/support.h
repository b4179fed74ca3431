// Text cases of this room: blocks of "key: value" lines, separated by empty lines; '#' starts a comment line.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "support/files.h"

namespace k3::test {

using TextCase = std::map<std::string, std::string>;

inline std::vector<TextCase> text_cases(const std::string& name) {
  std::ifstream file(data(name));
  EXPECT_TRUE(file.good()) << name;
  std::vector<TextCase> cases(1);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    if (line.empty()) {
      if (!cases.back().empty()) cases.emplace_back();
      continue;
    }
    const auto colon = line.find(": ");
    EXPECT_NE(colon, std::string::npos) << name << ": " << line;
    if (colon != std::string::npos) cases.back()[line.substr(0, colon)] = line.substr(colon + 2);
  }
  if (cases.back().empty()) cases.pop_back();
  return cases;
}

}  // namespace k3::test
