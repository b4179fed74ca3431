// The numbers of `k3 inspect`.
#include "checkpoint/summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/published.h"
#include "support/files.h"

namespace k3::test {
namespace {

TEST(Summary, KimiK3) {
  const ModelConfig config = kimi_k3_config();
  const auto json = nlohmann::json::parse(summary_json(config, summarize(config)));
  EXPECT_EQ(json["tensors"], 497'220);
  EXPECT_EQ(json["parameters"], 2'779'931'837'184);
  EXPECT_EQ(json["bytes"], 1'560'860'324'864);
  EXPECT_EQ(json["active_parameters"], 104'189'614'848);
  EXPECT_EQ(json["bytes_by_dtype"]["BF16"], 2 * 57'179'884'544);
  EXPECT_EQ(json["bytes_by_dtype"]["F32"], 4 * 11'122'432);
  EXPECT_EQ(json["bytes_by_dtype"]["U8 (MXFP4 codes)"], 2'722'740'830'208 / 2);
  EXPECT_EQ(json["bytes_by_dtype"]["U8 (MXFP4 scales)"], 85'085'650'944);
  EXPECT_EQ(json["cache_bytes_per_token"], 24 * 576 * 2);
  EXPECT_EQ(json["state_bytes_per_sequence"], 434'110'464 + 15'261'696);
  EXPECT_EQ(json["sequence_bytes"]["1048576"], 449'372'160 + 27'648ll * 1'048'576);
  EXPECT_EQ(json["memory_bytes"]["8192"], 1'560'860'324'864 + 449'372'160 + 27'648ll * 8192);
  EXPECT_EQ(json["attn_res_blocks"], 8);
  EXPECT_EQ(json["layers"]["kda"], 69);
  EXPECT_EQ(json["layers"]["moe"], 92);
}

TEST(Summary, TextNamesThePattern) {
  const ModelConfig config = kimi_k3_config();
  const std::string text = summary_text(config, summarize(config), "K3");
  for (const char* part :
       {"69 KDA layers: 0-2, 4-6, 8-10, 12-14, ..., 84-86, 88-90", "24 MLA layers: 3, 7, 11, 15, ..., 87, 91-92",
        "497,220", "2,779,931,837,184 (2.78 T)", "104,189,614,848 (104.19 B)", "1,560,860,324,864 (1.56 TB)",
        "8 blocks of 12 layers", "1 dense layer of"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 45);
}

TEST(Summary, StoredFilesGiveTheirOwnBytes) {
  for (const auto& [name, bytes] : {std::pair{"k3-tiny", 2'313'696}, {"kimi-linear-tiny", 0}}) {
    const auto folder = data("golden") / name;
    const Checkpoint checkpoint(folder);
    std::int64_t stored = 0;
    for (const auto& [tensor, view] : checkpoint.tensors()) stored += static_cast<std::int64_t>(view.bytes.size());
    EXPECT_EQ(summarize(read_config(folder), &checkpoint).totals.bytes, stored);
    if (bytes > 0) {
      EXPECT_EQ(stored, bytes);
    }
  }
}

}  // namespace
}  // namespace k3::test
