// Encoding and decoding: the pattern on frozen cases, merges against a literal restatement of BPE, control tokens,
// split UTF-8.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/files.h"
#include "text/pretokenize.h"
#include "text/tokenizers.h"
#include "text/utf8.h"

namespace k3 {
namespace {

std::vector<std::string> pieces_of(const std::string& text) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = piece_end(text, at);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

// Random text over characters that the pattern tells apart.
std::string random_text(std::mt19937& random, int characters) {
  static const std::vector<std::string> alphabet = {
      "a",      "b",      "t",      "h",      "e",      "T",      "H",          "E", " ",      " ",      "\n",
      "\r",     "\t",     "1",      "2",      "'",      "s",      "!",          ".", "\u4e2d", "\u3005", "\u00e9",
      "\u0301", "\u00a0", "\u01c5", "\u02b0", "\u0663", "\u017f", "\U0001f44d", "<", "|",      ">"};
  std::string text;
  for (int index = 0; index < characters; ++index) text += alphabet[random() % alphabet.size()];
  return text;
}

// The definition of BPE, word for word: join the adjacent pair of lowest rank until none is a token.
std::vector<TokenId> merge_by_definition(const RankTable& table, const std::string& piece) {
  std::vector<std::string> parts;
  for (const char byte : piece) parts.emplace_back(1, byte);
  while (true) {
    std::int32_t best = -1;
    std::size_t where = 0;
    for (std::size_t at = 0; at + 1 < parts.size(); ++at) {
      const std::int32_t rank = table.find(parts[at] + parts[at + 1]);
      if (rank >= 0 && (best < 0 || rank < best)) best = rank, where = at;
    }
    if (best < 0) break;
    parts[where] += parts[where + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& part : parts) ids.push_back(table.find(part));
  return ids;
}

TEST(Pretokenize, CutsAsThePatternDoes) {
  for (const auto& entry : test::read_json("text/pretokens.json"))
    EXPECT_EQ(pieces_of(entry["text"].get<std::string>()), entry["pieces"].get<std::vector<std::string>>())
        << entry["text"];
}

TEST(Pretokenize, HugeInputIsCutWhereTheReferenceCuts) {
  const auto ends_of = [](const std::string& text) {
    std::vector<std::size_t> ends;
    HugeInputCuts cuts(text);
    for (std::size_t at = 0; at < text.size(); at = ends.back()) ends.push_back(cuts.next(at));
    return ends;
  };
  using Ends = std::vector<std::size_t>;
  EXPECT_EQ(ends_of(std::string(25'000, 'a')), Ends{25'000});
  EXPECT_EQ(ends_of(std::string(60'000, 'a')), (Ends{25'000, 50'000, 60'000}));
  EXPECT_EQ(ends_of(std::string(20'000, 'a') + std::string(30'000, ' ')), (Ends{45'000, 50'000}));
  std::string words;
  while (words.size() < 900'000) words += "word ";
  EXPECT_EQ(ends_of(words), (Ends{400'000, 800'000, 900'000}));
  std::string han;  // characters count, not bytes; U+001C is whitespace here, though not for the pattern
  for (int index = 0; index < 26'000; ++index) han += "\u4e2d";
  EXPECT_EQ(ends_of(han), (Ends{75'000, 78'000}));
  EXPECT_EQ(ends_of(std::string(24'000, 'a') + "\x1c" + std::string(24'000, 'a')), Ends{48'001});
}

TEST(Ranks, MergesFollowTheDefinition) {
  const std::string file = train_bpe(std::vector<std::string>{read_file(test::data("text/pretokens.json")),
                                                              std::string(500, 'a') + " " + std::string(200, 'b')},
                                     {.ranks = 330, .split_digits = false, .max_bytes = 1 << 20});
  const RankTable table = RankTable::parse(file, "test");
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    std::string piece;  // both the short and the long way (more than 96 bytes)
    const int length = round % 4 == 0 ? 97 + static_cast<int>(random() % 200) : 1 + static_cast<int>(random() % 96);
    for (int index = 0; index < length; ++index)
      piece += round % 3 == 0 ? "ab"[random() % 2] : "aabeht cx\\u0"[random() % 12];
    std::vector<TokenId> ids;
    table.encode_piece(piece, ids);
    EXPECT_EQ(ids, table.find(piece) >= 0 ? std::vector<TokenId>{table.find(piece)} : merge_by_definition(table, piece))
        << piece;
  }
}

TEST(Ranks, DamagedFilesAreRefusedInOneLine) {
  const auto parse = [](const std::string& file) { return [file] { (void)Tokenizer::parse(file, "tiktoken.model"); }; };
  const std::string bytes = test::byte_ranks();
  test::expect_user_error(parse(""), {"tiktoken.model", "no ranks"});
  test::expect_user_error(parse(bytes + "YWI= 257\n"), {"line 257", "rank 257", "rank 256 is missing"});
  test::expect_user_error(parse(bytes + "YWI= 255\n"), {"line 257", "rank 255", "line 256"});
  test::expect_user_error(parse(bytes + "AA== 256\n"), {"line 257", "rank 256", "rank 0"});
  test::expect_user_error(parse(bytes + "Y?I= 256\n"), {"line 257", "base64"});
  test::expect_user_error(parse(bytes + "YWI 256\n"), {"line 257", "base64"});
  test::expect_user_error(parse(bytes + "=WI= 256\n"), {"line 257", "base64"});
  test::expect_user_error(parse(bytes + "YWI= many\n"), {"line 257", "rank"});
  test::expect_user_error(parse(bytes + "YWI= -1\n"), {"line 257", "rank"});
  test::expect_user_error(parse(bytes + "YWI= 99999999999999999999\n"), {"line 257", "rank"});
  test::expect_user_error(parse(bytes + "YWI=\n"), {"line 257", "<base64> <rank>"});
  test::expect_user_error(parse("YWI= 0\n"), {"byte 0x00"});
  EXPECT_EQ(Tokenizer::parse(bytes + "YWI= 256\r\n\r\n", "crlf").ranks(), 257);
}

TEST(Tokenizer, FolderWithoutRankFileSaysWhatToDo) {
  test::TempDir folder;
  test::expect_user_error([&] { (void)Tokenizer::load(folder.path()); }, {"tiktoken.model", "folder"});
}

TEST(Tokenizer, DecodingGivesTheTextBack) {
  std::mt19937 random(2);
  const Tokenizer& tokenizer = test::small_tokenizer();
  for (int round = 0; round < 500; ++round) {
    const std::string text = random_text(random, static_cast<int>(random() % 60));
    const std::vector<TokenId> ids = tokenizer.encode(text);
    EXPECT_EQ(tokenizer.decode(ids), text);
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string piece = stream.push(id);
      EXPECT_FALSE(find_invalid_utf8(piece));
      streamed += piece;
    }
    EXPECT_EQ(streamed + stream.finish(), text);
  }
}

TEST(Tokenizer, StreamHoldsBackSplitCharactersAndReplacesInvalidOnes) {
  const Tokenizer bytes = Tokenizer::parse(test::byte_ranks(), "bytes");  // id = byte
  StreamDecoder stream(bytes);
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x91), "");
  EXPECT_EQ(stream.push(0x8D), "\U0001F44D");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push('a'), "\uFFFDa");  // cannot become a character any more
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");

  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {  // any bytes: pieces joined = decode at once
    std::vector<TokenId> ids;
    for (int index = 0; index < 12; ++index)
      ids.push_back(static_cast<TokenId>("\x41\x80\xBF\xC3\xE4\xED\xA0\xF0\x9F\x90\xF4\xFF"[random() % 12] & 0xFF));
    StreamDecoder any(bytes);
    std::string streamed;
    for (const TokenId id : ids) streamed += any.push(id);
    EXPECT_EQ(streamed + any.finish(), bytes.decode(ids));
  }
}

TEST(Tokenizer, InvalidUtf8IsEncodedAsReplacementCharacters) {
  const Tokenizer& tokenizer = test::small_tokenizer();
  EXPECT_EQ(tokenizer.encode("a\xFF\xE4\xB8z"), tokenizer.encode("a\uFFFD\uFFFDz"));
  EXPECT_EQ(tokenizer.encode("\xED\xA0\x80"),
            tokenizer.encode("\uFFFD\uFFFD\uFFFD"));  // a surrogate is three invalid parts
  test::expect_user_error([] { require_utf8("abc\xFF", "prompt.txt"); }, {"prompt.txt", "byte 3", "0xff"});
}

TEST(Tokenizer, ControlTokensSitAboveTheRanks) {
  const Tokenizer& tokenizer = test::small_tokenizer();
  EXPECT_EQ(tokenizer.ranks(), 400);
  EXPECT_EQ(tokenizer.vocab(), 656);
  EXPECT_EQ(tokenizer.control("[BOS]"), 400);
  EXPECT_EQ(tokenizer.control("<|end_of_msg|>"), 402);
  EXPECT_EQ(tokenizer.control("<|open|>"), 403);
  EXPECT_EQ(tokenizer.control("<|media_pad|>"), 421);
  EXPECT_EQ(tokenizer.control("<|reserved_token_500|>"), 500);
  EXPECT_EQ(tokenizer.control("[PAD]"), 655);
  EXPECT_EQ(tokenizer.token_bytes(405), "<|sep|>");
  EXPECT_TRUE(tokenizer.is_control(655));
  EXPECT_FALSE(tokenizer.is_control(399));
  test::expect_user_error([&] { (void)tokenizer.control("<|im_end|>"); }, {"<|im_end|>"});
  test::expect_user_error([&] { (void)tokenizer.token_bytes(656); }, {"656", "655"});
  test::expect_user_error([&] { (void)tokenizer.decode(std::vector<TokenId>{-1}); }, {"-1"});
}

TEST(Tokenizer, SpecialMatchingIsOnlyOnWhereAskedFor) {
  const Tokenizer& tokenizer = test::small_tokenizer();
  const std::string text = "a<|open|>b[EOS]<|reserved_token_500|>";
  for (const TokenId id : tokenizer.encode(text)) EXPECT_FALSE(tokenizer.is_control(id));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(tokenizer.encode_with_control(text), (std::vector<TokenId>{'a', 403, 'b', 401, 500}));
  EXPECT_EQ(tokenizer.encode_with_control("<|open|"), tokenizer.encode("<|open|"));
}

TEST(Tokenizer, ConfigNamesTheControlTokens) {
  const auto with = [](const std::string& config) { return Tokenizer::parse(test::byte_ranks(), "folder", config); };
  const Tokenizer im = with(
      R"({"added_tokens_decoder": {"258": {"content": "<|im_end|>", "special": true}, "259": {"content": "<|im_user|>"}}})");
  EXPECT_EQ(im.control("<|im_end|>"), 258);
  EXPECT_EQ(im.encode_with_control("<|im_user|>x"), (std::vector<TokenId>{259, 'x'}));
  EXPECT_FALSE(im.find_control("<|open|>"));
  EXPECT_EQ(im.token_bytes(260), "<|reserved_token_260|>");
  EXPECT_EQ(with(R"({"bos_token": "[BOS]"})").control("<|open|>"), 259);
  test::expect_user_error([&] { with("[1]"); }, {"folder", "JSON object"});
  test::expect_user_error([&] { with(R"({"added_tokens_decoder": [1]})"); }, {"added_tokens_decoder"});
  test::expect_user_error([&] { with(R"({"added_tokens_decoder": {"x": {"content": "a"}}})"); }, {"'x'"});
  test::expect_user_error([&] { with(R"({"added_tokens_decoder": {"163586": {"content": "a"}}})"); },
                          {"163586", "256..511"});
  test::expect_user_error([&] { with(R"({"added_tokens_decoder": {"258": {"content": 3}}})"); },
                          {"added_tokens_decoder.258.content"});
  test::expect_user_error(
      [&] { with(R"({"added_tokens_decoder": {"258": {"content": "a"}, "259": {"content": "a"}}})"); },
      {"two ids", "'a'"});
}

TEST(Ranks, LongPiecesStayFast) {  // quadratic merging would take minutes here
  const std::string file =
      train_bpe(std::vector<std::string>{std::string(64, 'a')}, {.ranks = 260, .split_digits = false, .max_bytes = 64});
  const RankTable table = RankTable::parse(file, "test");
  std::vector<TokenId> ids;
  table.encode_piece(std::string(1'000'000, 'a'), ids);
  EXPECT_EQ(ids.size(), 1'000'000u / 16);
}

TEST(PublishedTokenizer, GivesTheFrozenIds) {
  K3_NEEDS_PUBLISHED_TOKENIZER(folder);
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  EXPECT_EQ(tokenizer.ranks(), 163'584);
  EXPECT_EQ(tokenizer.vocab(), 163'840);
  for (const auto& [name, id] : std::vector<std::pair<std::string, TokenId>>{{"[BOS]", 163584},
                                                                             {"[EOS]", 163585},
                                                                             {"<|end_of_msg|>", 163586},
                                                                             {"<|open|>", 163587},
                                                                             {"<|close|>", 163588},
                                                                             {"<|sep|>", 163589},
                                                                             {"[start_header_id]", 163590},
                                                                             {"[end_header_id]", 163591},
                                                                             {"[EOT]", 163593},
                                                                             {"<|media_begin|>", 163602},
                                                                             {"<|media_content|>", 163603},
                                                                             {"<|media_end|>", 163604},
                                                                             {"<|media_pad|>", 163605},
                                                                             {"<osagent_mode>", 163649},
                                                                             {"<|reserved_token_163837|>", 163837},
                                                                             {"[UNK]", 163838},
                                                                             {"[PAD]", 163839}})
    EXPECT_EQ(tokenizer.control(name), id) << name;
  for (const auto& entry : test::read_json("text/k3_ids.json")) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = entry["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(entry.contains("control") ? tokenizer.encode_with_control(text) : tokenizer.encode(text), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

}  // namespace
}  // namespace k3
