// tiktoken BPE with the K3 pre-tokenisation pattern and control tokens (checkpoint.md 4). Ids are exactly those of
// the tiktoken package after the reference's cuts of huge inputs (pretokenize.h). Bytes that are not UTF-8 are
// encoded as U+FFFD, one for each maximal invalid part; callers that must refuse them use require_utf8 (utf8.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace k3 {

using TokenId = std::int32_t;

class Tokenizer {
 public:
  // DIR holds tiktoken.model and, optionally, tokenizer_config.json whose added_tokens_decoder names the control
  // tokens. Control tokens are the 256 ids above the top rank. Without names of its own a folder gets K3's, at K3's
  // offsets above the top rank; a control token that nothing names is <|reserved_token_ID|>.
  static Tokenizer load(const std::filesystem::path& folder);
  // The same from the text of the two files; `config_json` may be empty. Errors name `source`.
  static Tokenizer parse(std::string_view rank_file, const std::string& source, const std::string& config_json = "");
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Safe to call from several threads at once.
  std::vector<TokenId> encode(
      std::string_view text) const;  // special matching off: control-token text is ordinary text
  std::vector<TokenId> encode_with_control(std::string_view text) const;  // special matching on
  std::string decode(std::span<const TokenId> ids) const;                 // bytes joined, invalid UTF-8 replaced
  std::string token_bytes(TokenId id) const;     // raw bytes; the name of a control token; UserError outside vocab
  TokenId control(std::string_view name) const;  // "<|open|>" -> id; UserError when there is none
  std::optional<TokenId> find_control(std::string_view name) const;  // the same without the error
  bool is_control(TokenId id) const;
  std::int64_t ranks() const;  // ids below are ordinary tokens
  std::int64_t vocab() const;  // ranks + control tokens

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Streaming decode: holds back bytes of a UTF-8 character that is not complete yet. All pieces joined equal decode()
// of all ids.
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
  std::int64_t ranks = 3840;  // size of the vocabulary without control tokens; at least 256
  bool split_digits = false;  // no merge is learned inside a run of digits: each digit 0-9 stays a token of its own
  std::int64_t max_bytes = 64 << 20;  // of text looked at
};
// Trains byte-level BPE over the same pre-tokenisation and returns a rank file (lines "<base64> <rank>"): ranks
// 0..255 are the bytes in order, then the merges, most frequent pair first. The same documents give the same file.
// UserError when the text has too few pairs.
std::string train_bpe(std::span<const std::string> documents, const BpeTrainOptions& options);

}  // namespace k3
