// Reading and writing safetensors: round trips of single files and shards, and every malformed file of
// tests/data/checkpoint.
#include "checkpoint/safetensors.h"

#include <cstring>
#include <fstream>
#include <numeric>

#include "base/files.h"
#include "checkpoint/support.h"

namespace k3::test {
namespace {

std::string file_text(const std::string& header, std::size_t data_bytes) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 255);
  return text + header + std::string(data_bytes, 'x');
}

std::vector<TensorView> parse(const std::string& text) {
  return parse_safetensors(std::as_bytes(std::span(text)), "some.safetensors");
}

void put(const std::filesystem::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

const std::string kTwoTensors =
    R"({"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]}})";

TEST(Safetensors, EveryMalformedHeaderIsRefused) {
  const std::vector<TextCase> cases = text_cases("checkpoint/safetensors_errors.txt");
  EXPECT_GT(cases.size(), 25u);
  for (const TextCase& entry : cases) {
    SCOPED_TRACE(entry.at("header"));
    const std::string text = file_text(entry.at("header"), std::stoul(entry.at("data_bytes")));
    expect_user_error([&] { parse(text); }, {"some.safetensors", entry.at("error")});
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = file_text(kTwoTensors, 8);
  EXPECT_EQ(parse(whole).size(), 2u);
  for (std::size_t size = 0; size < whole.size(); ++size)
    expect_user_error([&] { parse(whole.substr(0, size)); }, {"some.safetensors: "});
  expect_user_error([&] { parse(whole + "x"); }, {"1 bytes follow the last tensor"});
}

TEST(Safetensors, HeaderLengthsThatLie) {
  std::string text = file_text(kTwoTensors, 8);
  for (const std::uint64_t length :
       {std::uint64_t{1000}, std::uint64_t{100'000'001}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    std::memcpy(text.data(), &length, 8);
    expect_user_error([&] { parse(text); }, {"some.safetensors: header length"});
  }
}

TEST(Safetensors, EmptyFilesAndEmptyTensors) {
  EXPECT_TRUE(parse(file_text("{}", 0)).empty());
  const auto views = parse(
      file_text(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}}   )", 0));
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].elements(), 0);
}

TEST(Safetensors, AllDtypesHaveNamesAndSizes) {
  for (const char* name : {"BOOL", "F4",  "F6_E2M3", "F6_E3M2", "U8",  "I8",  "F8_E4M3", "F8_E5M2", "F8_E8M0", "I16",
                           "U16",  "F16", "BF16",    "I32",     "U32", "F32", "I64",     "U64",     "F64",     "C64"}) {
    const auto dtype = dtype_from_name(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(dtype_name(*dtype), name);
    const std::int64_t bytes = dtype_bits(*dtype) * 8 / 8;
    const auto views =
        parse(file_text(fmt::format(R"({{"a":{{"dtype":"{}","shape":[4,2],"data_offsets":[0,{}]}}}})", name, bytes),
                        static_cast<std::size_t>(bytes)));
    EXPECT_EQ(views.at(0).dtype, *dtype);
    EXPECT_EQ(views.at(0).elements(), 8);
  }
}

std::vector<std::byte> counted(std::int64_t bytes, int start) {
  std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  for (std::size_t at = 0; at < data.size(); ++at)
    data[at] = static_cast<std::byte>(static_cast<std::size_t>(start) + at * 7);
  return data;
}

const std::vector<TensorSpec> kSpecs = {{"first", Dtype::BF16, {3, 5}},
                                        {"none", Dtype::F32, {0}},
                                        {"second \"quoted\" \xC3\xA9", Dtype::U8, {17}},
                                        {"third", Dtype::F64, {2, 1, 2}},
                                        {"last", Dtype::BOOL, {1}}};

void write_all(CheckpointWriter& writer, std::size_t piece) {
  for (std::size_t index = 0; index < kSpecs.size(); ++index) {
    const auto data = counted(kSpecs[index].bytes(), static_cast<int>(index));
    for (std::size_t at = 0; at < data.size(); at += piece)
      writer.write(std::span(data).subspan(at, std::min(piece, data.size() - at)));
  }
}

void expect_all(const Checkpoint& checkpoint) {
  EXPECT_EQ(checkpoint.tensors().size(), kSpecs.size());
  for (std::size_t index = 0; index < kSpecs.size(); ++index) {
    const TensorView& view = checkpoint.at(kSpecs[index].name);
    EXPECT_EQ(view.dtype, kSpecs[index].dtype);
    EXPECT_EQ(view.shape, kSpecs[index].shape);
    const auto wanted = counted(kSpecs[index].bytes(), static_cast<int>(index));
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), view.bytes.begin(), view.bytes.end())) << view.name;
  }
}

TEST(Safetensors, OneShardRoundTrip) {
  for (const std::size_t piece : {1u, 3u, 1000u}) {
    const TempDir folder;
    CheckpointWriter writer(folder.path(), kSpecs);
    write_all(writer, piece);
    EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
    writer.finish();
    const Checkpoint checkpoint(folder.path());
    expect_all(checkpoint);
    EXPECT_EQ(checkpoint.metadata().at("format"), "pt");
    expect_all(Checkpoint(folder / "model.safetensors"));
  }
}

TEST(Safetensors, ShardsHaveSixDigitTotals) {
  const TempDir folder;
  CheckpointWriter writer(folder.path(), kSpecs, 40);
  write_all(writer, 13);
  writer.finish();
  for (const char* name : {"model-00001-of-000003.safetensors", "model-00002-of-000003.safetensors",
                           "model-00003-of-000003.safetensors", "model.safetensors.index.json"})
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  expect_all(Checkpoint(folder.path()));
}

TEST(Safetensors, WholeFileWriter) {
  const TempDir folder;
  std::vector<std::vector<std::byte>> data;
  std::vector<std::span<const std::byte>> spans;
  for (std::size_t index = 0; index < kSpecs.size(); ++index)
    data.push_back(counted(kSpecs[index].bytes(), static_cast<int>(index)));
  for (const auto& bytes : data) spans.emplace_back(bytes);
  write_safetensors(folder / "x.safetensors", kSpecs, spans);
  expect_all(Checkpoint(folder / "x.safetensors"));
}

TEST(Safetensors, NothingIsLeftWithoutFinish) {
  const TempDir folder;
  {
    CheckpointWriter writer(folder.path(), kSpecs, 40);
    write_all(writer, 8);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  CheckpointWriter incomplete(folder.path(), kSpecs);
  EXPECT_THROW(incomplete.finish(), std::logic_error);
}

TEST(Safetensors, WriterRefusesAFolderWithAModel) {
  const TempDir folder;
  put(folder / "model.safetensors", "x");
  expect_user_error([&] { CheckpointWriter(folder.path(), kSpecs); }, {"model.safetensors: already exists"});
}

TEST(Safetensors, MoreThanTheDiskHoldsIsRefusedAtOnce) {
  const TempDir folder;
  expect_user_error([&] { CheckpointWriter(folder / "out", {{"huge", Dtype::F32, {std::int64_t{1} << 50}}}); },
                    {"GB are free"});
}

struct Shards {
  TempDir folder;
  Shards() {
    CheckpointWriter writer(folder.path(), kSpecs, 40);
    write_all(writer, 64);
    writer.finish();
  }
  std::filesystem::path shard(int number) const {
    return folder / fmt::format("model-0000{}-of-000003.safetensors", number);
  }
  std::filesystem::path index() const { return folder / "model.safetensors.index.json"; }
  void edit_index(const std::string& from, const std::string& to) const {
    std::string text = read_file(index());
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    put(index(), text.replace(at, from.size(), to));
  }
  void expect_refused(std::initializer_list<std::string> fragments) const {
    expect_user_error([&] { Checkpoint{folder.path()}; }, fragments);
  }
};

TEST(SafetensorsIndex, MissingShard) {
  const Shards shards;
  std::filesystem::remove(shards.shard(2));
  shards.expect_refused({"shard model-00002-of-000003.safetensors named by the index is missing"});
}

TEST(SafetensorsIndex, TruncatedShard) {
  const Shards shards;
  std::filesystem::resize_file(shards.shard(3), std::filesystem::file_size(shards.shard(3)) - 1);
  shards.expect_refused({"model-00003-of-000003.safetensors: tensor ", "cut off"});
}

TEST(SafetensorsIndex, TensorThatTheShardLacks) {
  const Shards shards;
  shards.edit_index("\"third\"", "\"fourth\"");
  shards.expect_refused({"tensor fourth is not in model-0000"});
}

TEST(SafetensorsIndex, TensorInAnotherShard) {
  const Shards shards;
  shards.edit_index("model-00001", "model-00002");
  shards.expect_refused({"tensor first is not in model-00002-of-000003.safetensors as the index says"});
}

TEST(SafetensorsIndex, TensorThatTheIndexLacks) {
  const Shards shards;
  shards.edit_index("    \"first\": \"model-00001-of-000003.safetensors\",\n", "");
  shards.expect_refused({"tensor first in model-00001-of-000003.safetensors is not listed"});
}

TEST(SafetensorsIndex, DuplicateAcrossShards) {
  const Shards shards;
  std::filesystem::copy_file(shards.shard(1), shards.folder / "copy.safetensors");
  shards.edit_index("\"third\": \"", "\"third\": \"copy.safetensors\", \"more\": \"");
  shards.expect_refused({"tensor first is also in copy.safetensors"});
}

TEST(SafetensorsIndex, DuplicateInTheIndex) {
  const Shards shards;
  shards.edit_index("\"third\"", "\"first\"");
  shards.expect_refused({"key first appears twice"});
}

TEST(SafetensorsIndex, ShardsOutsideOfTheFolder) {
  for (const char* name : {"../evil.safetensors", "/etc/passwd", "..", ""}) {
    const Shards shards;
    shards.edit_index("model-00001-of-000003.safetensors", name);
    shards.expect_refused({"plain file names"});
  }
}

TEST(SafetensorsIndex, DamagedIndex) {
  for (const char* text : {"", "{", "[]", "{\"weight_map\": 3}", "{\"weight_map\": {\"a\": 3}}", "{}"}) {
    const Shards shards;
    put(shards.index(), text);
    shards.expect_refused({"model.safetensors.index.json: "});
  }
}

TEST(Safetensors, FoldersThatAreNoModel) {
  const TempDir folder;
  expect_user_error([&] { Checkpoint(folder.path()); }, {"has neither model.safetensors nor"});
  expect_user_error([&] { Checkpoint(folder / "nothing"); }, {"does not exist"});
  put(folder / "model.safetensors", file_text("{}", 0));
  put(folder / "model.safetensors.index.json", "{}");
  expect_user_error([&] { Checkpoint(folder.path()); }, {"holds both"});
}

TEST(Safetensors, GoldenShardsAreJoined) {
  const Checkpoint checkpoint(data("golden/k3-tiny"));
  const TensorView& view = checkpoint.at("language_model.model.embed_tokens.weight");
  EXPECT_EQ(view.shape, (std::vector<std::int64_t>{512, 64}));
  EXPECT_EQ(view.bytes.size(), 512u * 64 * 2);
  expect_user_error([&] { checkpoint.at("nothing"); }, {"tensor nothing is missing"});
}

}  // namespace
}  // namespace k3::test
