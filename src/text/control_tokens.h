// Names of the 256 control tokens above the ranks: K3's own at fixed offsets, or those of a tokenizer_config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace k3 {

constexpr int kControlTokens = 256;

// Name of each id from `ranks` on. `config_json`: text of tokenizer_config.json, empty when there is none; its field
// added_tokens_decoder ({"163586": {"content": "<|im_end|>", ...}, ...}) replaces K3's names. Errors name `source`.
std::vector<std::string> control_token_names(std::int64_t ranks, const std::string& config_json,
                                             const std::string& source);

}  // namespace k3
