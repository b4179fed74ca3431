#include "train/loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace k3::train {
namespace {

constexpr std::int64_t kShortestPiece = 16;  // text is not cut shorter than this to fill the end of a micro-batch

struct SplitMix {  // the same numbers everywhere, unlike std::shuffle
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t x = state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
};

}  // namespace

Loader::Loader(std::vector<MixtureSource> sources, std::int64_t context, std::int64_t micro_batch_tokens,
               std::uint64_t seed)
    : micro_batch_tokens_(micro_batch_tokens), cursor_(sources.size()) {
  K3_CHECK(!sources.empty() && context >= 1 && context <= micro_batch_tokens,
           "a loader needs sources and a context that fits");
  for (std::size_t index = 0; index < sources.size(); ++index) {
    Source source;
    source.shard = std::move(sources[index].shard);
    source.share = sources[index].share;
    source.seed = SplitMix{seed * 1000003 + index}.next();
    const Shard& shard = *source.shard;
    for (std::int64_t document = 0; document < shard.documents(); ++document) {
      const std::int64_t inputs = shard.length(document) - 1;
      if (shard.whole() && inputs > context) {
        ++source.left_out;
        continue;
      }
      for (std::int64_t offset = 0; offset < inputs; offset += context) {
        source.first_tokens.push_back(shard.start(document) + offset);
        source.lengths.push_back(static_cast<std::int32_t>(std::min(context, inputs - offset)));
      }
    }
    if (source.first_tokens.empty())
      throw_user("source {}: none of its {} samples fits into a context of {} tokens; make the stage's context longer",
                 sources[index].name, shard.documents(), context);
    sources_.push_back(std::move(source));
  }
}

void Loader::seek(const Cursor& cursor) {
  K3_CHECK(cursor.size() == sources_.size(), "a cursor of {} sources for a mixture of {}", cursor.size(),
           sources_.size());
  for (std::size_t index = 0; index < cursor.size(); ++index) {
    const SourceCursor& place = cursor[index];
    if (place.epoch < 0 || place.offset < 0 || place.sample < 0 || place.sample >= samples(index))
      throw_user(
          "trainer_state.json: the place in the data of source {} of the mixture does not exist; the file is damaged "
          "or the data changed",
          index + 1);
  }
  cursor_ = cursor;
}

void Loader::order(std::size_t index) {
  Source& source = sources_[index];
  const std::int64_t epoch = cursor_[index].epoch;
  if (source.ordered_epoch == epoch) return;
  source.order.resize(source.first_tokens.size());
  std::iota(source.order.begin(), source.order.end(), 0);
  SplitMix random{source.seed + static_cast<std::uint64_t>(epoch) * 0x632be59bd9b4e019ull};
  for (std::size_t left = source.order.size(); left > 1; --left)
    std::swap(source.order[left - 1], source.order[random.next() % left]);
  source.ordered_epoch = epoch;
}

std::size_t Loader::furthest_behind(bool text_only) const {
  std::size_t best = sources_.size();
  double lowest = 0;
  for (std::size_t index = 0; index < sources_.size(); ++index) {
    if (text_only && sources_[index].shard->whole()) continue;
    const double progress = static_cast<double>(cursor_[index].tokens) / sources_[index].share;
    if (best == sources_.size() || progress < lowest) {
      best = index;
      lowest = progress;
    }
  }
  return best;
}

std::int64_t Loader::length_of_next(std::size_t index) {
  order(index);
  const SourceCursor& cursor = cursor_[index];
  const auto sample = static_cast<std::size_t>(sources_[index].order[static_cast<std::size_t>(cursor.sample)]);
  return sources_[index].lengths[sample] - cursor.offset;
}

void Loader::append_row(MicroBatch& batch, std::size_t index, std::int64_t tokens) {
  Source& source = sources_[index];
  SourceCursor& cursor = cursor_[index];
  const auto sample = static_cast<std::size_t>(source.order[static_cast<std::size_t>(cursor.sample)]);
  const std::int64_t first = source.first_tokens[sample] + cursor.offset;
  for (std::int64_t token = first; token < first + tokens; ++token) {
    const bool counts = source.shard->counts(token + 1);
    batch.ids.push_back(source.shard->id(token));
    batch.targets.push_back(source.shard->id(token + 1));
    batch.mask.push_back(counts ? 1.0f : 0.0f);
    batch.counted += counts ? 1 : 0;
  }
  batch.row_starts.push_back(static_cast<std::int64_t>(batch.ids.size()));
  cursor.tokens += tokens;
  cursor.offset += tokens;
  if (cursor.offset < source.lengths[sample]) return;
  cursor.offset = 0;
  if (++cursor.sample < static_cast<std::int64_t>(source.first_tokens.size())) return;
  cursor.sample = 0;
  ++cursor.epoch;
}

MicroBatch Loader::next() {
  MicroBatch batch;
  batch.ids.reserve(static_cast<std::size_t>(micro_batch_tokens_));
  batch.targets.reserve(static_cast<std::size_t>(micro_batch_tokens_));
  batch.mask.reserve(static_cast<std::size_t>(micro_batch_tokens_));
  while (true) {
    const std::int64_t space = micro_batch_tokens_ - static_cast<std::int64_t>(batch.ids.size());
    if (space == 0) break;
    std::size_t source = furthest_behind(/*text_only=*/false);
    std::int64_t tokens = length_of_next(source);
    if (tokens > space) {  // fill the end with a piece of text; a whole sample waits for the next micro-batch
      source = furthest_behind(/*text_only=*/true);
      if (source == sources_.size()) break;
      tokens = length_of_next(source);
      if (tokens > space && space < kShortestPiece && !batch.ids.empty()) break;
      tokens = std::min(tokens, space);
    }
    append_row(batch, source, tokens);
  }
  batch.after = cursor_;
  return batch;
}

Prefetcher::Prefetcher(Loader& loader, std::size_t ahead)
    : loader_(loader), ahead_(ahead), thread_([this] { run(); }) {}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || ready_.size() < ahead_; });
      if (stop_) return;
    }
    MicroBatch batch;
    std::exception_ptr failure;
    try {
      batch = loader_.next();
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (failure) {
        failure_ = failure;
      } else {
        ready_.push_back(std::move(batch));
      }
    }
    changed_.notify_all();
    if (failure) return;
  }
}

MicroBatch Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || failure_; });
  if (ready_.empty()) std::rethrow_exception(failure_);
  MicroBatch batch = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

}  // namespace k3::train
