// The rank file and the merge itself. A rank file has one line `<base64 of the token's bytes> <rank>` a token; ranks
// are 0..n-1, each once, and all 256 single bytes have one, so that every text can be encoded. Merging: if the piece
// is a token, that is it; else the adjacent pair whose joined bytes have the lowest rank is joined (leftmost first)
// until no pair is a token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace k3 {

class RankTable {
 public:
  // Parses a rank file; errors name `source` and the line.
  static RankTable parse(std::string_view file, const std::string& source);

  std::int32_t size() const { return static_cast<std::int32_t>(offsets_.size()) - 1; }
  std::string_view bytes(std::int32_t rank) const {
    return {blob_.data() + offsets_[rank], offsets_[rank + 1] - offsets_[rank]};
  }
  std::int32_t find(std::string_view bytes) const;  // -1: not a token

  // Appends the ids of one pre-token.
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  struct Slot {
    std::uint32_t tag = 0;  // upper half of the hash
    std::int32_t rank = -1;
  };
  void insert(std::int32_t rank);
  void merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const;  // quadratic, on the stack
  void merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const;   // heap of pairs, n log n

  std::string blob_;                    // all tokens in rank order
  std::vector<std::uint32_t> offsets_;  // [ranks + 1] into blob_
  std::vector<Slot> slots_;             // open addressing, at most half full
  std::size_t longest_ = 0;             // bytes of the longest token
};

std::string encode_base64(std::string_view bytes);

}  // namespace k3
