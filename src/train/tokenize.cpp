// Makes the shard of a source: documents are read or generated in order, cut into chunks, tokenised on threads and
// joined in order.
#include <algorithm>
#include <deque>
#include <future>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "train/shard.h"
#include "train/text_source.h"

namespace k3::train {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kChunkBytes = 1 << 20;  // of text for one task of a thread
constexpr std::int64_t kGeneratedChunk =
    2048;  // documents that share a generator; fixes the result, so it is no option
constexpr std::int64_t kFingerprintDocuments =
    64;  // generated documents that go into the hash, so that a changed generator is noticed

struct Hash {  // FNV-1a, 64 bits
  std::uint64_t value = 14695981039346656037ull;
  void add(std::string_view bytes) {
    for (const char byte : bytes) value = (value ^ static_cast<unsigned char>(byte)) * 1099511628211ull;
    value = (value ^ 0x1f) * 1099511628211ull;  // so that "ab", "c" and "a", "bc" differ
  }
  void add_file(const fs::path& path) {
    const MappedFile file(path);
    add({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  }
};

std::uint64_t mixed(std::uint64_t seed, std::uint64_t chunk) {  // splitmix64
  std::uint64_t x = seed + 0x9e3779b97f4a7c15ull * (chunk + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

struct Line {
  std::string text;
  std::int64_t number = 0;
};

Document document_of(const SourceRecipe& source, const std::string& path, const Line& line) {
  if (source.kind == "txt") return {line.text, std::nullopt, ""};
  const std::string place = fmt::format("{} line {}", path, line.number);
  if (source.kind == "conversation") {
    Conversation conversation = parse_conversation(line.text, place);
    conversation.add_generation_prefix = false;
    return {"", conversation, ""};
  }
  const nlohmann::json object = nlohmann::json::parse(line.text, nullptr, false);
  if (!object.is_object()) throw_user("{}: is not a JSON object; each line must be one", place);
  const auto field = object.find(source.field);
  if (field == object.end() || !field->is_string())
    throw_user("{}: has no text in field \"{}\"; name the right one with data.{}.field", place, source.field,
               source.name);
  return {field->get<std::string>(), std::nullopt, ""};
}

using Chunk = std::vector<TrainingIds>;

// Runs tasks on threads, a bounded number ahead, and hands their results on in the order in which they were given.
class Ordered {
 public:
  Ordered(int threads, ShardWriter& writer) : ahead_(static_cast<std::size_t>(std::max(1, threads))), writer_(writer) {}
  void add(std::function<Chunk()> task) {
    if (running_.size() >= ahead_) take();
    running_.push_back(std::async(std::launch::async, std::move(task)));
  }
  void finish() {
    while (!running_.empty()) take();
  }

 private:
  void take() {
    const Chunk chunk = running_.front().get();
    running_.pop_front();
    for (const TrainingIds& document : chunk)
      if (document.ids.size() >= 2) writer_.add(document);
  }
  std::size_t ahead_;
  ShardWriter& writer_;
  std::deque<std::future<Chunk>> running_;
};

void tokenize_files(const SourceRecipe& source, const Tokenizer& tokenizer, Ordered& ordered) {
  for (const std::string& path : source.paths) {
    std::vector<Line> lines;
    std::size_t bytes = 0;
    const auto flush = [&] {
      ordered.add([&source, &tokenizer, path, lines = std::move(lines)] {
        Chunk chunk;
        for (const Line& line : lines) chunk.push_back(to_training_ids(document_of(source, path, line), tokenizer));
        return chunk;
      });
      lines.clear();
      bytes = 0;
    };
    const auto take = [&](std::string text, std::int64_t number) {
      bytes += text.size();
      lines.push_back({std::move(text), number});
      if (bytes >= kChunkBytes) flush();
    };
    if (source.kind == "txt") {
      take(read_text(path), 1);
    } else {
      for_each_line(path, take);
    }
    if (!lines.empty()) flush();
  }
}

std::shared_ptr<const Filler> filler_of(const SourceRecipe& source) {
  if (source.filler.empty()) return nullptr;
  std::vector<std::string> books;
  SourceRecipe reader = source;
  reader.kind = "jsonl";
  for_each_line(source.filler, [&](std::string text, std::int64_t number) {
    books.push_back(document_of(reader, source.filler, {std::move(text), number}).text);
  });
  return std::make_shared<const Filler>(make_filler(books));
}

Chunk generate(const SourceRecipe& source, std::uint64_t seed, std::int64_t first, std::int64_t count,
               const Tokenizer& tokenizer, const std::shared_ptr<const Filler>& filler) {
  const auto generator = make_generator(source.generator, mixed(seed, static_cast<std::uint64_t>(first)),
                                        source.heldout ? Split::heldout : Split::train, filler);
  Chunk chunk;
  for (std::int64_t document = 0; document < count; ++document)
    chunk.push_back(to_training_ids(generator->next(), tokenizer));
  return chunk;
}

}  // namespace

fs::path make_shard(const SourceRecipe& source, const fs::path& tokenizer_folder, const Tokenizer& tokenizer,
                    const fs::path& folder, std::uint64_t seed, int threads) {
  Hash hash;
  hash.add("k3 shard 1");
  hash.add_file(tokenizer_folder / "tiktoken.model");
  if (fs::exists(tokenizer_folder / "tokenizer_config.json")) hash.add_file(tokenizer_folder / "tokenizer_config.json");
  hash.add(source.kind);
  const bool generated = source.kind == "generator";
  std::shared_ptr<const Filler> filler;
  if (generated) {
    filler = filler_of(source);
    hash.add(fmt::format("{} {} {} {}", source.generator, source.documents, seed, source.heldout));
    if (!source.filler.empty()) hash.add_file(source.filler);
    for (const TrainingIds& document : generate(source, seed, 0, kFingerprintDocuments, tokenizer, filler))
      hash.add({reinterpret_cast<const char*>(document.ids.data()), document.ids.size() * sizeof(TokenId)});
  } else {
    hash.add(source.field);
    for (const std::string& path : source.paths) hash.add_file(path);
  }
  const fs::path file = folder / fmt::format("{}-{:016x}.safetensors", source.name, hash.value);
  if (fs::exists(file)) return file;

  ShardWriter writer(/*whole=*/generated || source.kind == "conversation");
  Ordered ordered(threads, writer);
  if (generated) {
    for (std::int64_t first = 0; first < source.documents; first += kGeneratedChunk)
      ordered.add([&, first] {
        return generate(source, seed, first, std::min(kGeneratedChunk, source.documents - first), tokenizer, filler);
      });
  } else {
    tokenize_files(source, tokenizer, ordered);
  }
  ordered.finish();
  if (writer.documents() == 0)
    throw_user("{}: has no document of two tokens or more; name another file",
               generated ? source.name : source.paths.front());
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_user("{}: cannot be made: {}", folder.string(), error.message());
  writer.write(file, tokenizer.vocab());
  return file;
}

}  // namespace k3::train
