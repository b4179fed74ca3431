#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "base/files.h"
#include "text/control_tokens.h"
#include "text/pretokenize.h"
#include "text/ranks.h"
#include "text/utf8.h"

namespace k3 {

struct Tokenizer::Impl {
  RankTable table;
  std::vector<std::string> control_names;                       // of the ids from table.size() on
  std::unordered_map<std::string_view, TokenId> control_ids;    // views into control_names
  std::array<std::vector<TokenId>, 256> control_by_first_byte;  // longest name first

  void encode(std::string_view text, std::vector<TokenId>& ids) const;
  void encode_with_control(std::string_view text, std::vector<TokenId>& ids) const;
  std::string_view control_name(TokenId id) const { return control_names[static_cast<std::size_t>(id - table.size())]; }
};

void Tokenizer::Impl::encode(std::string_view text, std::vector<TokenId>& ids) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = piece_end(text, at);
    table.encode_piece(text.substr(at, end - at), ids);
    at = end;
  }
}

// Control tokens are cut out first (leftmost, longest); what lies between them is encoded on its own.
void Tokenizer::Impl::encode_with_control(std::string_view text, std::vector<TokenId>& ids) const {
  std::size_t plain_start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto& candidates = control_by_first_byte[static_cast<unsigned char>(text[at])];
    const auto found = std::find_if(candidates.begin(), candidates.end(),
                                    [&](TokenId id) { return text.substr(at).starts_with(control_name(id)); });
    if (found == candidates.end()) {
      ++at;
      continue;
    }
    encode(text.substr(plain_start, at - plain_start), ids);
    ids.push_back(*found);
    plain_start = at += control_name(*found).size();
  }
  encode(text.substr(plain_start), ids);
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  const std::filesystem::path rank_path = folder / "tiktoken.model", config_path = folder / "tokenizer_config.json";
  if (!std::filesystem::is_regular_file(rank_path))
    throw_user("{}: is not there; name a folder that holds a tokenizer (a file tiktoken.model)", rank_path.string());
  const MappedFile file(rank_path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  auto impl = std::make_unique<Impl>();
  impl->table = RankTable::parse(text, rank_path.string());
  const bool has_config = std::filesystem::exists(config_path);
  impl->control_names = control_token_names(impl->table.size(), has_config ? read_file(config_path) : std::string(),
                                            config_path.string());
  return Tokenizer(std::move(impl));
}

Tokenizer Tokenizer::parse(std::string_view rank_file, const std::string& source, const std::string& config_json) {
  auto impl = std::make_unique<Impl>();
  impl->table = RankTable::parse(rank_file, source);
  impl->control_names = control_token_names(impl->table.size(), config_json, source);
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  for (std::size_t offset = 0; offset < impl_->control_names.size(); ++offset) {
    const std::string_view name = impl_->control_names[offset];
    const auto id = static_cast<TokenId>(impl_->table.size() + static_cast<std::int32_t>(offset));
    impl_->control_ids.emplace(name, id);
    impl_->control_by_first_byte[static_cast<unsigned char>(name.front())].push_back(id);
  }
  for (auto& candidates : impl_->control_by_first_byte)
    std::stable_sort(candidates.begin(), candidates.end(), [this](TokenId left, TokenId right) {
      return impl_->control_name(left).size() > impl_->control_name(right).size();
    });
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

namespace {

// Calls encode_part on every part that the reference would encode on its own.
template <class EncodePart>
void for_each_part(std::string_view text, EncodePart&& encode_part) {
  std::string repaired;
  if (find_invalid_utf8(text)) text = repaired = replace_invalid_utf8(text);
  HugeInputCuts cuts(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = cuts.next(at);
    encode_part(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 4);
  for_each_part(text, [&](std::string_view part) { impl_->encode(part, ids); });
  return ids;
}

std::vector<TokenId> Tokenizer::encode_with_control(std::string_view text) const {
  if (const auto whole = find_control(text)) return {*whole};
  std::vector<TokenId> ids;
  for_each_part(text, [&](std::string_view part) { impl_->encode_with_control(part, ids); });
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) bytes += token_bytes(id);
  return replace_invalid_utf8(bytes);
}

std::string Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || id >= vocab())
    throw_user("token id {} is outside the vocabulary 0..{}; was it made with another tokenizer?", id, vocab() - 1);
  return std::string(is_control(id) ? impl_->control_name(id) : impl_->table.bytes(id));
}

TokenId Tokenizer::control(std::string_view name) const {
  const auto id = find_control(name);
  if (!id) throw_user("the tokenizer has no control token {}; is it one of the Kimi K3 family?", name);
  return *id;
}

std::optional<TokenId> Tokenizer::find_control(std::string_view name) const {
  const auto found = impl_->control_ids.find(name);
  return found == impl_->control_ids.end() ? std::nullopt : std::optional(found->second);
}

bool Tokenizer::is_control(TokenId id) const { return id >= ranks() && id < vocab(); }
std::int64_t Tokenizer::ranks() const { return impl_->table.size(); }
std::int64_t Tokenizer::vocab() const { return ranks() + static_cast<std::int64_t>(impl_->control_names.size()); }

std::string StreamDecoder::push(TokenId id) {
  pending_ += tokenizer_->token_bytes(id);
  const std::size_t held = incomplete_utf8_tail(pending_);
  std::string ready = replace_invalid_utf8(std::string_view(pending_).substr(0, pending_.size() - held));
  pending_.erase(0, pending_.size() - held);
  return ready;
}

std::string StreamDecoder::finish() {
  std::string rest = replace_invalid_utf8(pending_);
  pending_.clear();
  return rest;
}

}  // namespace k3
