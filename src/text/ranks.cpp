#include "text/ranks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>

#include "base/error.h"

namespace k3 {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> base64_values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t index = 0; index < kBase64.size(); ++index)
    values[static_cast<unsigned char>(kBase64[index])] = static_cast<std::int8_t>(index);
  return values;
}

// Appends the decoded bytes; false when `text` is not padded base64.
bool decode_base64(std::string_view text, std::string& out) {
  static constexpr auto values = base64_values();
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    std::uint32_t bits = 0;
    for (std::size_t index = 0; index < 4; ++index) {
      const bool pad = last && index >= 4 - padding;
      const int value = pad ? 0 : values[static_cast<unsigned char>(text[at + index])];
      if (value < 0) return false;
      bits = bits << 6 | static_cast<std::uint32_t>(value);
    }
    const std::size_t bytes = last ? 3 - padding : 3;
    for (std::size_t index = 0; index < bytes; ++index) out.push_back(static_cast<char>(bits >> (16 - 8 * index)));
  }
  return true;
}

std::uint64_t load(const char* from, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

std::uint64_t mix(std::uint64_t left, std::uint64_t right) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(left ^ 0x9E3779B97F4A7C15ull) * (right ^ 0xD1B54A32D192ED03ull);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t hash_bytes(std::string_view bytes) {
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t hash = left;
  for (; left > 16; left -= 8, at += 8) hash = mix(hash, load(at, 8));
  if (left >= 8) return mix(mix(hash, load(at, 8)), load(at + left - 8, 8));
  if (left >= 4) return mix(hash, load(at, 4) | load(at + left - 4, 4) << 32);
  if (left >= 2) return mix(hash, load(at, 2) | load(at + left - 2, 2) << 32);
  return mix(hash, left == 1 ? load(at, 1) : 0);
}

struct RankLine {
  std::uint32_t offset, length;  // bytes in the blob of file order
  std::int64_t rank;
  std::uint32_t line;
};

constexpr const char* kAdvice = "the rank file is damaged; copy it again";

// One line of the file without its line end; std::nullopt for a blank one.
std::optional<RankLine> parse_line(std::string_view text, std::uint32_t line, std::string& blob,
                                   const std::string& source) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (text.empty()) return std::nullopt;
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) throw_user("{}: line {}: wanted `<base64> <rank>`; {}", source, line, kAdvice);
  const std::size_t offset = blob.size();
  if (!decode_base64(text.substr(0, space), blob))
    throw_user("{}: line {}: the token is not base64; {}", source, line, kAdvice);
  const std::string_view digits = text.substr(space + 1);
  std::int64_t rank = -1;
  const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || stopped != digits.data() + digits.size() || rank < 0)
    throw_user("{}: line {}: the rank is not a whole number from 0 on; {}", source, line, kAdvice);
  if (blob.size() > std::numeric_limits<std::uint32_t>::max())
    throw_user("{}: line {}: more than 4 GiB of tokens", source, line);
  return RankLine{static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(blob.size() - offset), rank, line};
}

}  // namespace

RankTable RankTable::parse(std::string_view file, const std::string& source) {
  std::string blob;
  std::vector<RankLine> lines;
  std::uint32_t line = 0;
  for (std::size_t at = 0; at < file.size();) {
    const std::size_t end = std::min(file.find('\n', at), file.size());
    if (const auto parsed = parse_line(file.substr(at, end - at), ++line, blob, source)) lines.push_back(*parsed);
    at = end + 1;
  }
  const auto ranks = static_cast<std::int64_t>(lines.size());
  if (ranks == 0) throw_user("{}: holds no ranks; {}", source, kAdvice);

  std::vector<const RankLine*> by_rank(lines.size(), nullptr);
  const RankLine* beyond = nullptr;
  for (const RankLine& entry : lines) {
    if (entry.rank >= ranks) {
      if (beyond == nullptr) beyond = &entry;
      continue;
    }
    const RankLine*& place = by_rank[static_cast<std::size_t>(entry.rank)];
    if (place != nullptr)
      throw_user("{}: line {}: rank {} was already given in line {}; {}", source, entry.line, entry.rank, place->line,
                 kAdvice);
    place = &entry;
  }
  if (beyond != nullptr) {
    const auto missing = std::find(by_rank.begin(), by_rank.end(), nullptr) - by_rank.begin();
    throw_user("{}: line {}: rank {} leaves a gap, rank {} is missing; {}", source, beyond->line, beyond->rank, missing,
               kAdvice);
  }

  RankTable table;
  table.blob_.reserve(blob.size());
  table.offsets_.reserve(lines.size() + 1);
  table.offsets_.push_back(0);
  table.slots_.resize(std::bit_ceil(lines.size() * 2));
  for (const RankLine* entry : by_rank) {
    table.blob_.append(blob, entry->offset, entry->length);
    table.offsets_.push_back(static_cast<std::uint32_t>(table.blob_.size()));
    table.longest_ = std::max<std::size_t>(table.longest_, entry->length);
  }
  for (std::int32_t rank = 0; rank < table.size(); ++rank) {
    if (const std::int32_t same = table.find(table.bytes(rank)); same >= 0)
      throw_user("{}: line {}: the token of rank {} is also that of rank {}; {}", source, by_rank[rank]->line, rank,
                 same, kAdvice);
    table.insert(rank);
  }
  for (int value = 0; value < 256; ++value) {
    const char byte = static_cast<char>(value);
    if (table.find({&byte, 1}) < 0)
      throw_user("{}: byte 0x{:02x} has no rank, so some text could not be encoded; {}", source, value, kAdvice);
  }
  return table;
}

std::int32_t RankTable::find(std::string_view bytes) const {
  if (bytes.size() > longest_) return -1;
  const std::uint64_t hash = hash_bytes(bytes);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.rank < 0) return -1;
    if (slot.tag == tag && this->bytes(slot.rank) == bytes) return slot.rank;
  }
}

void RankTable::insert(std::int32_t rank) {
  const std::uint64_t hash = hash_bytes(bytes(rank));
  std::size_t at = hash & (slots_.size() - 1);
  while (slots_[at].rank >= 0) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {static_cast<std::uint32_t>(hash >> 32), rank};
}

namespace {
constexpr std::int32_t kNoMerge = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kShortPiece = 96;  // bytes; beyond it the heap wins
}  // namespace

void RankTable::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t rank = find(piece); rank >= 0) ids.push_back(rank);
  else if (piece.size() <= kShortPiece) merge_short(piece, ids);
  else merge_long(piece, ids);
}

// starts[i] is the first byte of part i, joined[i] the rank of parts i and i + 1 together.
void RankTable::merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::array<std::uint8_t, kShortPiece + 2> starts;
  std::array<std::int32_t, kShortPiece + 1> joined;
  std::size_t parts = piece.size();
  const auto rank_of = [&](std::size_t first) {  // of parts first and first + 1
    if (first + 2 > parts) return kNoMerge;
    const std::int32_t rank = find(piece.substr(starts[first], starts[first + 2] - starts[first]));
    return rank < 0 ? kNoMerge : rank;
  };
  for (std::size_t part = 0; part <= parts; ++part) starts[part] = static_cast<std::uint8_t>(part);
  for (std::size_t part = 0; part < parts; ++part) joined[part] = rank_of(part);
  while (true) {
    const auto best = std::min_element(joined.begin(), joined.begin() + parts);
    if (*best == kNoMerge) break;
    const auto at = static_cast<std::size_t>(best - joined.begin());
    std::copy(starts.begin() + at + 2, starts.begin() + parts + 1, starts.begin() + at + 1);
    std::copy(joined.begin() + at + 2, joined.begin() + parts, joined.begin() + at + 1);
    --parts;
    joined[at] = rank_of(at);
    if (at > 0) joined[at - 1] = rank_of(at - 1);
  }
  for (std::size_t part = 0; part < parts; ++part)
    ids.push_back(find(piece.substr(starts[part], starts[part + 1] - starts[part])));
}

// Parts as a linked list over byte positions; the heap holds (rank, position) and entries that no longer hold are
// skipped.
void RankTable::merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const {
  const auto size = static_cast<std::uint32_t>(piece.size());
  std::vector<std::uint32_t> next(size + 1), previous(size + 1);
  std::vector<std::int32_t> joined(size, kNoMerge);
  using Candidate = std::pair<std::int32_t, std::uint32_t>;
  std::vector<Candidate> start;
  start.reserve(size);
  const auto rank_of = [&](std::uint32_t at) {
    if (next[at] >= size) return kNoMerge;
    const std::int32_t rank = find(piece.substr(at, next[next[at]] - at));
    return rank < 0 ? kNoMerge : rank;
  };
  for (std::uint32_t at = 0; at <= size; ++at) next[at] = at + 1, previous[at] = at - 1;
  for (std::uint32_t at = 0; at < size; ++at) {
    joined[at] = rank_of(at);
    if (joined[at] != kNoMerge) start.emplace_back(joined[at], at);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(std::greater<>(), std::move(start));
  const auto refresh = [&](std::uint32_t at) {
    joined[at] = rank_of(at);
    if (joined[at] != kNoMerge) heap.emplace(joined[at], at);
  };
  while (!heap.empty()) {
    const auto [rank, at] = heap.top();
    heap.pop();
    if (joined[at] != rank) continue;
    const std::uint32_t absorbed = next[at];
    joined[absorbed] = kNoMerge;
    next[at] = next[absorbed];
    previous[next[at]] = at;
    refresh(at);
    if (at > 0) refresh(previous[at]);
  }
  for (std::uint32_t at = 0; at < size; at = next[at]) ids.push_back(find(piece.substr(at, next[at] - at)));
}

std::string encode_base64(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t index = 0; index < 3; ++index)
      bits = bits << 8 | (index < count ? static_cast<unsigned char>(bytes[at + index]) : 0u);
    for (std::size_t index = 0; index < 4; ++index)
      out.push_back(index <= count ? kBase64[bits >> (18 - 6 * index) & 63] : '=');
  }
  return out;
}

}  // namespace k3
