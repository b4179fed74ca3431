// Reader of text files, plain or zstd (any window up to 2^27): lines or documents of a jsonl, or the whole of a txt.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace k3::train {

// Calls `take` with every line that is not empty and its number (from 1), without the line end.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(std::string line, std::int64_t number)>& take);
// The field "text" of every line of a jsonl; a line without one is an error of the input.
std::vector<std::string> read_documents(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);  // all of it, decompressed

}  // namespace k3::train
