// Tokenizers for the tests: a small one trained here, and the published K3 one where it lies.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "support/files.h"
#include "text/ranks.h"
#include "text/tokenizer.h"

namespace k3::test {

inline std::string byte_ranks() {  // every byte a token, no merges
  std::string file;
  for (int value = 0; value < 256; ++value)
    file += fmt::format("{} {}\n", encode_base64(std::string(1, static_cast<char>(value))), value);
  return file;
}

inline const Tokenizer& small_tokenizer() {
  static const Tokenizer tokenizer = [] {
    const std::vector<std::string> documents = {
        read_file(data("text/pretokens.json")),
        "the cat and the dog saw the other cat; the message says: think about the response, then answer. "};
    BpeTrainOptions options;
    options.ranks = 400;
    return Tokenizer::parse(train_bpe(documents, options), "small");
  }();
  return tokenizer;
}

// K3_TIKTOKEN names the folder of the published K3 rank file (or the file); otherwise it is looked for beside the
// checkout.
inline std::optional<std::filesystem::path> k3_tokenizer_folder() {
  const char* named = std::getenv("K3_TIKTOKEN");
  std::filesystem::path folder =
      named != nullptr ? named : std::filesystem::path(K3_SOURCE_DIR) / "../shared/data/kimi-k3-tokenizer";
  if (folder.filename() == "tiktoken.model") folder = folder.parent_path();
  if (!std::filesystem::exists(folder / "tiktoken.model")) return std::nullopt;
  return folder;
}

inline nlohmann::ordered_json read_json(const std::string& name) {
  return nlohmann::ordered_json::parse(read_file(data(name)));
}

}  // namespace k3::test

#define K3_NEEDS_PUBLISHED_TOKENIZER(folder)             \
  const auto folder = ::k3::test::k3_tokenizer_folder(); \
  if (!folder) GTEST_SKIP() << "the published K3 tokenizer is not here; K3_TIKTOKEN names its folder"
