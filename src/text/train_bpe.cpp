// Byte-level BPE training: count every distinct pre-token once, keep the count of every adjacent pair, and join the
// most frequent pair again and again. Only the words that hold the joined pair are touched. The heap is lazy: an
// entry whose count has changed is put back. Ties: the pair with the smaller left id, then the smaller right id, so
// the result does not depend on hashing.
#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "text/pretokenize.h"
#include "text/ranks.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace k3 {
namespace {

using Pair = std::uint64_t;  // left id in the upper half, right id in the lower

Pair pair_of(TokenId left, TokenId right) { return static_cast<Pair>(left) << 32 | static_cast<std::uint32_t>(right); }
TokenId left_of(Pair pair) { return static_cast<TokenId>(pair >> 32); }
TokenId right_of(Pair pair) { return static_cast<TokenId>(pair & 0xFFFFFFFFu); }

struct PairHash {
  std::size_t operator()(Pair pair) const {
    return static_cast<std::size_t>((pair ^ pair >> 29) * 0x9E3779B97F4A7C15ull >> 8);
  }
};

struct Word {
  std::vector<TokenId> ids;
  std::int64_t count = 0;
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// Distinct pre-tokens in order of first appearance.
class WordCounter {
 public:
  explicit WordCounter(bool split_digits) : split_digits_(split_digits) {}

  void add_text(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = piece_end(text, at);
      const std::string_view piece = text.substr(at, end - at);
      if (split_digits_) add_between_digits(piece);
      else add(piece);
      at = end;
    }
  }

  std::vector<Word> words;

 private:
  void add_between_digits(std::string_view piece) {
    constexpr std::string_view digits = "0123456789";
    while (!piece.empty()) {
      const std::size_t end = std::min(piece.find_first_of(digits), piece.size());
      add(piece.substr(0, end));
      piece.remove_prefix(std::min(end + 1, piece.size()));
    }
  }

  void add(std::string_view piece) {
    if (piece.size() < 2) return;  // nothing to join
    const auto [found, is_new] = index_.emplace(piece, words.size());
    if (is_new) {
      words.emplace_back();
      for (const char byte : piece) words.back().ids.push_back(static_cast<unsigned char>(byte));
    }
    ++words[found->second].count;
  }

  bool split_digits_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views into the documents
};

class Trainer {
 public:
  Trainer(std::vector<Word> words, std::int64_t ranks) : words_(std::move(words)), ranks_(ranks) {
    for (int value = 0; value < 256; ++value) add_token(std::string(1, static_cast<char>(value)));
    for (std::uint32_t word = 0; word < words_.size(); ++word) count_pairs(word, +1);
    for (const auto& [pair, count] : counts_) heap_.push({count, pair});
    touched_.clear();
  }

  std::vector<std::string> run() {
    while (static_cast<std::int64_t>(tokens_.size()) < ranks_) {
      if (heap_.empty())
        throw_user(
            "vocabulary training: the text has pairs for {} ranks only, {} were asked for; give more text or ask for "
            "fewer ranks",
            tokens_.size(), ranks_);
      const Candidate best = heap_.top();
      heap_.pop();
      const std::int64_t count = counts_[best.pair];
      if (count == best.count && count > 0) join(best.pair);
      else if (count > 0) heap_.push({count, best.pair});
    }
    return std::move(tokens_);
  }

 private:
  TokenId add_token(std::string bytes) {
    const auto id = static_cast<TokenId>(tokens_.size());
    const auto [found, is_new] = token_ids_.emplace(bytes, id);
    if (is_new) tokens_.push_back(std::move(bytes));
    return found->second;  // bytes that are a token already (made of another pair) keep their rank
  }

  // Adds the word's pairs to the counts (sign +1) or takes them out (-1).
  void count_pairs(std::uint32_t word, std::int64_t sign) {
    const std::vector<TokenId>& ids = words_[word].ids;
    for (std::size_t at = 0; at + 1 < ids.size(); ++at) {
      const Pair pair = pair_of(ids[at], ids[at + 1]);
      counts_[pair] += sign * words_[word].count;
      if (sign < 0) continue;
      std::vector<std::uint32_t>& places = places_[pair];
      if (places.empty() || places.back() != word) places.push_back(word);
      touched_.push_back(pair);
    }
  }

  void join(Pair pair) {
    const TokenId joined =
        add_token(tokens_[static_cast<std::size_t>(left_of(pair))] + tokens_[static_cast<std::size_t>(right_of(pair))]);
    std::vector<std::uint32_t> places = std::move(places_[pair]);
    places_.erase(pair);
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (const std::uint32_t word : places) {
      count_pairs(word, -1);
      join_in(words_[word].ids, pair, joined);
      count_pairs(word, +1);
    }
    counts_.erase(pair);
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const Pair changed :
         touched_)  // a pair without the new token can only have become rarer: its old entry finds that out
      if (left_of(changed) == joined || right_of(changed) == joined) heap_.push({counts_[changed], changed});
    touched_.clear();
  }

  static void join_in(std::vector<TokenId>& ids, Pair pair, TokenId joined) {
    std::size_t kept = 0;
    for (std::size_t at = 0; at < ids.size(); ++at, ++kept) {
      const bool here = at + 1 < ids.size() && pair_of(ids[at], ids[at + 1]) == pair;
      ids[kept] = here ? joined : ids[at];
      if (here) ++at;
    }
    ids.resize(kept);
  }

  std::vector<Word> words_;
  std::int64_t ranks_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, TokenId> token_ids_;
  std::unordered_map<Pair, std::int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> places_;  // words that may hold the pair
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> touched_;
};

}  // namespace

std::string train_bpe(std::span<const std::string> documents, const BpeTrainOptions& options) {
  if (options.ranks < 256)
    throw_user("vocabulary training: ranks is {}; it must be at least 256, one for every byte", options.ranks);
  if (options.max_bytes <= 0)
    throw_user("vocabulary training: max_bytes is {}; it must be positive", options.max_bytes);
  WordCounter counter(options.split_digits);
  std::deque<std::string> repaired;  // the counter keeps views
  auto left = static_cast<std::size_t>(options.max_bytes);
  for (const std::string& document : documents) {
    std::string_view text = std::string_view(document).substr(0, left);
    left -= text.size();
    text.remove_suffix(incomplete_utf8_tail(text));
    if (find_invalid_utf8(text)) text = repaired.emplace_back(replace_invalid_utf8(text));
    counter.add_text(text);
    if (left == 0) break;
  }
  const std::vector<std::string> tokens = Trainer(std::move(counter.words), options.ranks).run();
  std::string file;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank)
    file += fmt::format("{} {}\n", encode_base64(tokens[rank]), rank);
  return file;
}

}  // namespace k3
