// The output parser: bytes 0..5 of the input choose control tokens, the rest is text. Nothing fails, events nest,
// and feeding byte by byte gives the same message as feeding whole runs of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/xtml_parser.h"

namespace {

constexpr const char* kControls[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]", "<|media_pad|>"};

k3::XtmlMessage parse(std::string_view input, k3::XtmlParser::Start start, bool byte_by_byte) {
  k3::XtmlParser parser(start);
  k3::XtmlMessage message;
  for (std::size_t at = 0; at < input.size();) {
    const auto byte = static_cast<unsigned char>(input[at]);
    if (byte < 6) {
      message.add(parser.control(kControls[byte]));
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    while (!byte_by_byte && end < input.size() && static_cast<unsigned char>(input[end]) >= 6) ++end;
    message.add(parser.text(input.substr(at, end - at)));
    at = end;
  }
  message.add(parser.finish());
  return message;
}

void same(bool equal) {
  if (!equal) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const auto start : {k3::XtmlParser::Start::think, k3::XtmlParser::Start::response}) {
    const k3::XtmlMessage whole = parse(input, start, false), bytes = parse(input, start, true);
    same(whole.reasoning == bytes.reasoning && whole.content == bytes.content &&
         whole.calls.size() == bytes.calls.size());
    for (std::size_t call = 0; call < whole.calls.size(); ++call) {
      same(whole.calls[call].name == bytes.calls[call].name &&
           whole.calls[call].complete == bytes.calls[call].complete);
      same(whole.calls[call].arguments_json() == bytes.calls[call].arguments_json());
    }
  }
  return 0;
}
