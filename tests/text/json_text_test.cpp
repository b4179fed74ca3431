// JSON with literal bytes: what is accepted, and numbers and strings written as Python's json.dumps writes them.
#include <gtest/gtest.h>

#include "support/files.h"
#include "text/json_text.h"

namespace k3 {
namespace {

std::string compact(const std::string& text) { return write_json(parse_json(text, "x"), kSortedCompact); }

TEST(JsonText, NumbersAsPythonWritesThem) {
  const std::pair<const char*, const char*> cases[] = {{"0", "0"},
                                                       {"-0", "0"},
                                                       {"-0.0", "-0.0"},
                                                       {"12345678901234567890123", "12345678901234567890123"},
                                                       {"1.0", "1.0"},
                                                       {"1.50", "1.5"},
                                                       {"1e2", "100.0"},
                                                       {"1E-5", "1e-05"},
                                                       {"0.0001", "0.0001"},
                                                       {"0.00012345", "0.00012345"},
                                                       {"1234567890123456.0", "1234567890123456.0"},
                                                       {"1e15", "1000000000000000.0"},
                                                       {"1e16", "1e+16"},
                                                       {"1.5e300", "1.5e+300"},
                                                       {"0.1", "0.1"},
                                                       {"-2.5e-7", "-2.5e-07"},
                                                       {"1e999", "Infinity"},
                                                       {"NaN", "NaN"},
                                                       {"-Infinity", "-Infinity"},
                                                       {"123.456", "123.456"},
                                                       {"5e-324", "5e-324"}};
  for (const auto& [text, wanted] : cases) EXPECT_EQ(compact(text), wanted) << text;
}

TEST(JsonText, Strings) {
  EXPECT_EQ(compact(R"("\u00e9\ud83d\udc4d\/\b\u001f\u007f")"), "\"\u00e9\U0001F44D/\\b\\u001f\x7f\"");
  EXPECT_EQ(compact(R"("\ud83d x \udc4d")"), "\"\uFFFD x \uFFFD\"");
}

TEST(JsonText, ObjectsAreSortedByCodePointAndKeepTheLastOfEqualKeys) {
  EXPECT_EQ(compact("{\"\uFFFF\": 1, \"\U00010000\": 2, \"b\": 3, \"B\": 4, \"b\": {\"z\": [], \"a\": {}}}"),
            "{\"B\":4,\"b\":{\"a\":{},\"z\":[]},\"\uFFFF\":1,\"\U00010000\":2}");
  EXPECT_EQ(write_json(parse_json("{\"b\":1,\"a\":[1,{\"c\":2}],\"b\":3}", "x"), kSpaced),
            "{\"b\": 3, \"a\": [1, {\"c\": 2}]}");
}

TEST(JsonText, PrefixKeepsLiteralsAndIgnoresTheRest) {
  const std::string text = " {\"a\" : [1,  2] , \"b\":1e2} rest";
  const JsonResult result = parse_json_prefix(text);
  ASSERT_TRUE(result.ok);
  EXPECT_EQ(text.substr(result.end), " rest");
  EXPECT_EQ(result.value.find("a")->literal, "[1,  2]");
  EXPECT_EQ(result.value.find("b")->literal, "1e2");
}

TEST(JsonText, WhatIsNoJsonIsRefused) {
  for (const char* text :
       {"",   " ",  "{",       "{\"a\"}",     "{\"a\":}", "{a:1}", "{\"a\":1,}", "[1,]",   "[1 2]", "tru", "01", "-",
        "+1", ".5", "\"\\x\"", "\"\\u12g4\"", "\"a\nb\"", "\"",    "\"\\",       "\"\\u1", "'a'",   "1 2", "1.", "1e"})
    test::expect_user_error([&] { (void)parse_json(text, "file"); }, {"file: line "});
}

}  // namespace
}  // namespace k3
