// Streaming parser of what a K3 model writes after the generation prefix (checkpoint.md 5.6). Fed token by token
// (control tokens are recognised by id, so ordinary text that looks like one stays text); any split of the input
// gives the same events once merged.
//   reasoning C think S  O response S answer C response S  [O tools S calls C tools S]  C message S E
// What models get wrong is understood too: a channel opened without closing think, a message closed inside a
// channel, a marker without its S, a channel opened twice, tools nobody declared. Broken markup never fails and is
// never shown; text that has no place counts as content (unless it is blank).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace k3 {

struct XtmlEvent {
  enum class Kind {
    reasoning,  // text: a delta
    content,    // text: a delta
    reasoning_is_content,  // the answer was given inside think (response or message closed there): move all reasoning
    call_begin,      // text: the tool's name
    argument_begin,  // key, type
    argument,        // key, type; text: a delta of the value (a string's raw text; other types: JSON)
    argument_end,    // key, type
    call_end,        // missing when the input ends inside the call
    end              // once, last
  } kind;
  std::string text;
  std::string key, type;  // argument_*: its name and declared type (string, number, boolean, null, object, array)
  int index = 0;          // call_*, argument_*: 1-based order of the call
  bool operator==(const XtmlEvent&) const = default;
};

class XtmlParser {
 public:
  enum class Start { think, response };
  explicit XtmlParser(Start start);
  ~XtmlParser();
  XtmlParser(XtmlParser&&) noexcept;
  XtmlParser& operator=(XtmlParser&&) noexcept;

  // One control token by its text ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"). [EOS] ends the message
  // too, others are dropped.
  std::vector<XtmlEvent> control(std::string_view token);
  std::vector<XtmlEvent> text(std::string_view piece);  // ordinary text
  std::vector<XtmlEvent> finish();  // end of input, complete or not; gives `end` unless it was given
  bool done() const;                // the message was closed

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The parser fed with ids: holds back split characters and tells control tokens from text.
class XtmlReader {
 public:
  XtmlReader(const Tokenizer& tokenizer, XtmlParser::Start start)
      : tokenizer_(&tokenizer), decoder_(tokenizer), parser_(start) {}
  std::vector<XtmlEvent> push(TokenId id);
  std::vector<XtmlEvent> finish();
  bool done() const { return parser_.done(); }

 private:
  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  XtmlParser parser_;
};

// Everything that a message said, put together from its events.
struct XtmlMessage {
  struct Argument {
    std::string key, type, value;
  };
  struct Call {
    std::string name;
    std::vector<Argument> arguments;
    bool complete = false;
    // As a JSON object in the order given: strings quoted, other values as they are when they are JSON, else as
    // strings.
    std::string arguments_json() const;
  };
  std::string reasoning, content;
  std::vector<Call> calls;
  void add(const XtmlEvent& event);
  void add(const std::vector<XtmlEvent>& events);
};

}  // namespace k3
