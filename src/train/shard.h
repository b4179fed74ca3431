// Tokenised data on disk: one safetensors file a source, mapped when read.
//   ids    U16 or I32 [tokens]      all documents one after the other
//   starts I64 [documents + 1]      first token of each document
//   loss   U8  [(tokens + 7) / 8]   bit i of byte i / 8: predicting token i counts; absent when every token counts
// The file name carries a hash of tokenizer, source content and options, so equal work is never done twice and stale
// data never used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "text/tokenizer.h"
#include "train/recipe.h"
#include "train/tasks/generator.h"

namespace k3::train {

class Shard {
 public:
  explicit Shard(const std::filesystem::path& file);
  std::int64_t documents() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
  std::int64_t tokens() const { return starts_.back(); }
  std::int64_t start(std::int64_t document) const { return starts_[static_cast<std::size_t>(document)]; }
  std::int64_t length(std::int64_t document) const { return start(document + 1) - start(document); }
  TokenId id(std::int64_t token) const {
    return narrow_.empty() ? wide_[static_cast<std::size_t>(token)] : narrow_[static_cast<std::size_t>(token)];
  }
  bool counts(std::int64_t token) const {
    return loss_.empty() || (loss_[static_cast<std::size_t>(token / 8)] >> (token % 8) & 1) != 0;
  }
  bool whole() const { return whole_; }  // documents are samples that must not be cut (conversations, generated tasks)

 private:
  Checkpoint file_;
  std::span<const std::uint16_t> narrow_;
  std::span<const std::int32_t> wide_;
  std::span<const std::int64_t> starts_;
  std::span<const std::uint8_t> loss_;
  bool whole_ = false;
};

// Collects documents and writes the file at once, atomically.
class ShardWriter {
 public:
  explicit ShardWriter(bool whole) : whole_(whole) {}
  void add(const TrainingIds& document);
  std::int64_t documents() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
  void write(const std::filesystem::path& file, std::int64_t vocab) const;

 private:
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> starts_{0};
  std::vector<std::uint8_t> loss_;  // bits
  bool all_count_ = true, whole_ = false;
};

// Where the shard of a source lies in `folder`; it is made first when it is not there, on `threads` threads, with the
// same result for any number.
std::filesystem::path make_shard(const SourceRecipe& source, const std::filesystem::path& tokenizer_folder,
                                 const Tokenizer& tokenizer, const std::filesystem::path& folder, std::uint64_t seed,
                                 int threads);

}  // namespace k3::train
