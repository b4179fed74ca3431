// Readers, shards and the loader: what is on disk is what was read, order depends on the seed alone, any micro-batch
// can be returned to.
#include <gtest/gtest.h>
#include <zstd.h>

#include <fstream>
#include <map>

#include "base/files.h"
#include "support/files.h"
#include "train/loader.h"
#include "train/shard.h"
#include "train/text_source.h"
#include "train/validation.h"

namespace k3::train {
namespace {

using test::TempDir;

void write(const std::filesystem::path& path, const std::string& text) { write_file_atomic(path, text); }

void write_zstd(const std::filesystem::path& path, const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  write(path, packed);
}

const std::filesystem::path kBytes = test::data("train/bytes");

TrainingIds ids_of(std::vector<TokenId> ids, std::vector<std::uint8_t> loss = {}) {
  if (loss.empty()) loss.assign(ids.size(), 1);
  return {std::move(ids), std::move(loss)};
}

std::shared_ptr<const Shard> shard_of(const std::filesystem::path& file, const std::vector<TrainingIds>& documents,
                                      bool whole) {
  ShardWriter writer(whole);
  for (const TrainingIds& document : documents) writer.add(document);
  writer.write(file, 512);
  return std::make_shared<const Shard>(file);
}

// Document d of n tokens is 1000 d, 1000 d + 1, ...; so a token says where it came from.
std::vector<TrainingIds> counting_documents(const std::vector<int>& lengths, int base) {
  std::vector<TrainingIds> documents;
  for (std::size_t document = 0; document < lengths.size(); ++document) {
    std::vector<TokenId> ids;
    for (int token = 0; token < lengths[document]; ++token)
      ids.push_back(base + static_cast<int>(document) * 100 + token);
    documents.push_back(ids_of(ids));
  }
  return documents;
}

TEST(TextSource, LinesOfPlainAndCompressedFilesAgree) {
  const TempDir folder;
  std::string text;
  for (int line = 0; line < 5000; ++line)
    text += fmt::format("line {} with some words{}\n", line, line % 7 == 0 ? "\r" : "");
  text += "last without end";
  write(folder / "a.txt", text);
  write_zstd(folder / "a.txt.zst", text.substr(0, 1000));
  std::string both = read_file(folder / "a.txt.zst");
  write_zstd(folder / "rest.zst", text.substr(1000));
  write(folder / "a.txt.zst", both + read_file(folder / "rest.zst"));  // two frames one after the other
  std::vector<std::string> plain, packed;
  for_each_line(folder / "a.txt", [&](std::string line, std::int64_t) { plain.push_back(line); });
  for_each_line(folder / "a.txt.zst", [&](std::string line, std::int64_t) { packed.push_back(line); });
  EXPECT_EQ(plain.size(), 5001u);
  EXPECT_EQ(plain, packed);
  EXPECT_EQ(plain[7], "line 7 with some words");
  EXPECT_EQ(read_text(folder / "a.txt.zst"), text);
}

TEST(TextSource, DamagedZstdIsRefused) {
  const TempDir folder;
  write_zstd(folder / "a.zst", std::string(10000, 'x') + "end");
  const std::string good = read_file(folder / "a.zst");
  write(folder / "cut.zst", good.substr(0, good.size() - 5));
  write(folder / "junk.zst", "this is not zstd");
  test::expect_user_error([&] { read_text(folder / "cut.zst"); }, {"cut.zst", "zstd"});
  test::expect_user_error([&] { read_text(folder / "junk.zst"); }, {"junk.zst", "zstd"});
  test::expect_user_error([&] { read_text(folder / "none.zst"); }, {"none.zst"});
}

TEST(Shard, RoundTripWithLossBits) {
  const TempDir folder;
  const auto shard =
      shard_of(folder / "s.safetensors",
               {ids_of({1, 2, 3}, {1, 0, 1}), ids_of({4, 5, 6, 7, 8, 9, 10}, {0, 0, 1, 1, 1, 0, 1})}, true);
  EXPECT_EQ(shard->documents(), 2);
  EXPECT_EQ(shard->length(1), 7);
  EXPECT_TRUE(shard->whole());
  std::string counts;
  for (std::int64_t token = 0; token < shard->tokens(); ++token) {
    EXPECT_EQ(shard->id(token), token + 1);
    counts += shard->counts(token) ? '1' : '0';
  }
  EXPECT_EQ(counts, "1010011101");
}

TEST(Shard, SameForAnyNumberOfThreadsAndReused) {
  const TempDir folder;
  std::string lines;
  for (int line = 0; line < 400; ++line)
    lines += fmt::format("{{\"source\": \"x\", \"text\": \"document {} {}\"}}\n", line,
                         std::string(static_cast<std::size_t>(line * 20), 'a'));
  write_zstd(folder / "d.jsonl.zst", lines);
  const Tokenizer tokenizer = Tokenizer::load(kBytes);
  SourceRecipe source{.name = "d",
                      .kind = "jsonl",
                      .paths = {(folder / "d.jsonl.zst").string()},
                      .field = "text",
                      .generator = "",
                      .filler = ""};
  SourceRecipe sums{.name = "sums",
                    .kind = "generator",
                    .paths = {},
                    .field = "",
                    .generator = "arithmetic-text",
                    .filler = "",
                    .documents = 5000};
  for (const SourceRecipe& recipe : {source, sums}) {
    const auto one = make_shard(recipe, kBytes, tokenizer, folder / "one", 3, 1);
    const auto many = make_shard(recipe, kBytes, tokenizer, folder / "many", 3, 4);
    EXPECT_EQ(read_file(one), read_file(many));
    const auto written = std::filesystem::last_write_time(one);
    EXPECT_EQ(make_shard(recipe, kBytes, tokenizer, folder / "one", 3, 4), one);
    EXPECT_EQ(std::filesystem::last_write_time(one), written);
  }
  EXPECT_NE(make_shard(sums, kBytes, tokenizer, folder / "one", 4, 2),
            make_shard(sums, kBytes, tokenizer, folder / "one", 3, 2));
  const Shard shard(make_shard(source, kBytes, tokenizer, folder / "one", 3, 1));
  EXPECT_EQ(shard.documents(), 400);
  std::vector<TokenId> first;
  for (std::int64_t token = 0; token < shard.length(0); ++token) first.push_back(shard.id(token));
  EXPECT_EQ(first.back(), tokenizer.control("[EOS]"));
  first.pop_back();
  EXPECT_EQ(tokenizer.decode(first), "document 0 ");
  source.field = "body";
  test::expect_user_error([&] { make_shard(source, kBytes, tokenizer, folder / "one", 3, 2); },
                          {"d.jsonl.zst line 1", "\"body\"", "data.d.field"});
}

TEST(Loader, EveryTokenOncePerEpochWithItsTarget) {
  const TempDir folder;
  const auto shard = shard_of(folder / "s.safetensors", counting_documents({30, 7, 50, 2}, 0), false);
  Loader loader({{"s", shard, 1.0}}, /*context=*/8, /*micro_batch_tokens=*/20, 1);
  std::map<std::int64_t, int> seen;
  std::int64_t tokens = 0;
  while (tokens < 85) {  // 29 + 6 + 49 + 1 inputs an epoch
    const MicroBatch batch = loader.next();
    for (std::size_t row = 0; row + 1 < batch.row_starts.size(); ++row)
      EXPECT_LE(batch.row_starts[row + 1] - batch.row_starts[row], 8);
    for (std::size_t token = 0; token < batch.ids.size(); ++token, ++tokens) {
      EXPECT_EQ(batch.targets[token], batch.ids[token] + 1);
      if (tokens < 85) ++seen[batch.ids[token]];
    }
    EXPECT_LE(batch.ids.size(), 20u);
  }
  EXPECT_EQ(seen.size(), 85u);
}

TEST(Loader, SamplesStayWholeAndMasksFollow) {
  const TempDir folder;
  std::vector<TrainingIds> documents = counting_documents({9, 5, 12, 40, 7}, 0);
  for (TrainingIds& document : documents)
    for (std::size_t token = 0; token < document.loss.size(); ++token)
      document.loss[token] = document.ids[token] % 3 == 0;
  const auto shard = shard_of(folder / "s.safetensors", documents, true);
  Loader loader({{"s", shard, 1.0}}, /*context=*/16, /*micro_batch_tokens=*/16, 1);
  EXPECT_EQ(loader.left_out(0), 1);
  for (int count = 0; count < 20; ++count) {
    const MicroBatch batch = loader.next();
    for (std::size_t row = 0; row + 1 < batch.row_starts.size(); ++row)
      EXPECT_EQ(batch.ids[static_cast<std::size_t>(batch.row_starts[row])] % 100, 0) << "a row begins inside a sample";
    std::int64_t counted = 0;
    for (std::size_t token = 0; token < batch.ids.size(); ++token) {
      EXPECT_EQ(batch.mask[token], batch.targets[token] % 3 == 0 ? 1.0f : 0.0f);
      counted += batch.mask[token] != 0;
    }
    EXPECT_EQ(batch.counted, counted);
  }
}

TEST(Loader, SharesAreSharesOfTokens) {
  const TempDir folder;
  const auto text = shard_of(folder / "t.safetensors", counting_documents({90, 90, 90}, 0), false);
  const auto samples = shard_of(folder / "s.safetensors", counting_documents({9, 13, 6, 20}, 300), true);
  Loader loader({{"t", text, 3.0}, {"s", samples, 1.0}}, 32, 64, 5);
  std::int64_t from_text = 0, tokens = 0;
  for (int count = 0; count < 100; ++count) {
    const MicroBatch batch = loader.next();
    EXPECT_GT(batch.ids.size(), 48u) << "text fills the end";
    for (const std::int64_t id : batch.ids) from_text += id < 300;
    tokens += static_cast<std::int64_t>(batch.ids.size());
  }
  EXPECT_NEAR(static_cast<double>(from_text) / static_cast<double>(tokens), 0.75, 0.01);
}

TEST(Loader, ResumesAnywhereAndDependsOnTheSeed) {
  const TempDir folder;
  const auto text = shard_of(folder / "t.safetensors", counting_documents({90, 31, 77}, 0), false);
  const auto samples = shard_of(folder / "s.safetensors", counting_documents({9, 13, 6, 20}, 300), true);
  const std::vector<MixtureSource> sources = {{"t", text, 1.0}, {"s", samples, 1.0}};
  Loader straight(sources, 24, 50, 5), other(sources, 24, 50, 6);
  std::vector<MicroBatch> all;
  bool differs = false;
  for (int count = 0; count < 30; ++count) {
    all.push_back(straight.next());
    differs = differs || other.next().ids != all.back().ids;
  }
  EXPECT_TRUE(differs);
  for (const std::size_t cut : {0u, 3u, 11u, 20u}) {
    Loader resumed(sources, 24, 50, 5);
    resumed.seek(all[cut].after);
    Prefetcher ahead(resumed);
    for (std::size_t count = cut + 1; count < all.size(); ++count) {
      const MicroBatch batch = ahead.next();
      ASSERT_EQ(batch.ids, all[count].ids);
      ASSERT_EQ(batch.row_starts, all[count].row_starts);
      ASSERT_TRUE(batch.after == all[count].after);
    }
  }
}

TEST(Loader, ContextTooShortForEverySampleIsRefused) {
  const TempDir folder;
  const auto samples = shard_of(folder / "s.safetensors", counting_documents({9, 13}, 0), true);
  test::expect_user_error([&] { Loader({{"chats", samples, 1.0}}, 4, 8, 1); }, {"chats", "context of 4"});
}

}  // namespace
}  // namespace k3::train
