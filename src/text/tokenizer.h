// tiktoken BPE with the K3 pre-tokenisation pattern and control tokens (checkpoint.md 4). Ids are exactly those of the tiktoken package.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace k3 {

using TokenId = std::int32_t;

class Tokenizer {
 public:
  // DIR holds tiktoken.model and, optionally, tokenizer_config.json whose added_tokens_decoder names the control tokens.
  // Without it, a K3-sized rank file (163,584 ranks) gets K3's 256 control tokens; any other gets K3's names at the same offsets above its top rank.
  static Tokenizer load(const std::filesystem::path& folder);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  std::vector<TokenId> encode(std::string_view text) const;               // special matching off: control-token text is ordinary text
  std::vector<TokenId> encode_with_control(std::string_view text) const;  // special matching on
  std::string decode(std::span<const TokenId> ids) const;                 // bytes joined, invalid UTF-8 replaced
  std::string token_bytes(TokenId id) const;                              // raw bytes; the name of a control token
  TokenId control(std::string_view name) const;                           // "<|open|>" -> id; UserError when there is none
  bool is_control(TokenId id) const;
  std::int64_t vocab() const;  // ranks + control tokens

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Streaming decode: holds back bytes of a UTF-8 character that is not complete yet.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(TokenId id);
  std::string finish();  // what is left, replaced where invalid

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

struct BpeTrainOptions {
  std::int64_t ranks = 3840;         // size of the vocabulary without control tokens; at least 256
  bool split_digits = false;         // no merge ever joins two digits: each digit stays a token of its own
  std::int64_t max_bytes = 64 << 20; // of text looked at
};
// Trains byte-level BPE over the same pre-tokenisation and returns a rank file (lines "<base64> <rank>").
std::string train_bpe(std::span<const std::string> documents, const BpeTrainOptions& options);

}  // namespace k3
