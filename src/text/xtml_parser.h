// Streaming parser of what a K3 model writes after the generation prefix (checkpoint.md 5.6). Fed token by token (control tokens are
// recognised by id, so ordinary text that looks like one stays text); any split of the input gives the same events once merged.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace k3 {

struct XtmlEvent {
  enum class Kind { reasoning, content, call_begin, argument, call_end, end } kind;
  std::string text;           // reasoning, content: a delta; argument: the value; call_begin: the tool name
  std::string key, type;      // argument: its name and declared type (string, number, boolean, null, object, array)
  int index = 0;              // call_begin, argument, call_end: 1-based call index
};

class XtmlParser {
 public:
  enum class Start { think, response };
  explicit XtmlParser(Start start);
  ~XtmlParser();
  XtmlParser(XtmlParser&&) noexcept;
  // One control token by its text ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>").
  std::vector<XtmlEvent> control(std::string_view token);
  std::vector<XtmlEvent> text(std::string_view piece);  // ordinary text
  std::vector<XtmlEvent> finish();                      // end of input, complete or not
  bool done() const;

 private:
  struct State;
  State* state_;
};

}  // namespace k3
