// Micro-batches from the mixture of a stage, in an order that depends on the seed alone and can be taken up again
// anywhere.
//
// Which source comes next: the one that is furthest behind its share of tokens. Within a source every epoch visits all
// samples once, shuffled. Text is cut into samples of at most `context` tokens, and a sample that meets the end of a
// micro-batch goes on as a row of the next one; conversations and generated tasks stay whole (those longer than the
// context are left out). Each sample is a row of its own: no attention and no state crosses rows. The target of a row's
// last token is the document's next token; a document's last token is target only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "train/shard.h"

namespace k3::train {

struct SourceCursor {
  std::int64_t epoch = 0, sample = 0;  // next sample of the epoch's order
  std::int64_t offset = 0;             // tokens of it already used
  std::int64_t tokens = 0;             // handed out so far
  bool operator==(const SourceCursor&) const = default;
};
using Cursor = std::vector<SourceCursor>;  // one a source of the mixture

struct MicroBatch {
  std::vector<std::int64_t> ids, targets;   // [tokens]
  std::vector<float> mask;                  // [tokens] 1 where the target counts
  std::vector<std::int64_t> row_starts{0};  // [rows + 1]
  std::int64_t counted = 0;                 // targets that count
  Cursor after;                             // where the mixture stands once this micro-batch is used
};

struct MixtureSource {
  std::string name;
  std::shared_ptr<const Shard> shard;
  double share = 1;
};

class Loader {
 public:
  Loader(std::vector<MixtureSource> sources, std::int64_t context, std::int64_t micro_batch_tokens, std::uint64_t seed);
  void seek(const Cursor& cursor);
  MicroBatch next();
  std::int64_t left_out(std::size_t source) const {
    return sources_[source].left_out;
  }  // samples longer than the context
  std::int64_t samples(std::size_t source) const {
    return static_cast<std::int64_t>(sources_[source].first_tokens.size());
  }

 private:
  struct Source {
    std::shared_ptr<const Shard> shard;
    double share = 1;
    std::uint64_t seed = 0;
    std::vector<std::int64_t> first_tokens;  // [samples] position in the shard
    std::vector<std::int32_t> lengths;       // [samples] input tokens
    std::vector<std::int32_t> order;         // the epoch's permutation
    std::int64_t ordered_epoch = -1;
    std::int64_t left_out = 0;
  };
  void order(std::size_t source);
  std::size_t furthest_behind(bool text_only) const;  // sources_.size() when there is none
  std::int64_t length_of_next(std::size_t source);    // tokens left of the next sample
  void append_row(MicroBatch& batch, std::size_t source, std::int64_t tokens);

  std::vector<Source> sources_;
  std::int64_t micro_batch_tokens_;
  Cursor cursor_;
};

// Runs a loader on a thread of its own, a few micro-batches ahead.
class Prefetcher {
 public:
  explicit Prefetcher(Loader& loader, std::size_t ahead = 6);
  ~Prefetcher();
  MicroBatch next();

 private:
  void run();
  Loader& loader_;
  const std::size_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<MicroBatch> ready_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace k3::train
