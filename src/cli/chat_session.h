// A conversation whose history is the model's state. A new turn reads only what is new: the rendered conversation must begin, byte for
// byte, with what the slot was fed, and only the rest is fed. Where it does not (an answer that broke the format), the whole
// conversation is read again, because a recurrent state cannot be taken back.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_stats.h"
#include "model/generate.h"
#include "text/chat.h"
#include "text/xtml_parser.h"

namespace k3::cli {

struct ChatSettings {
  std::string system;               // empty: no system message
  std::optional<std::string> effort;  // low, high, max; absent: the format's default
  bool thinking = true;
  SamplingOptions sampling;
  std::int64_t max_tokens = 2048;    // of one answer
  std::int64_t context_tokens = 0;   // of the whole conversation
};

struct ChatTurn {
  XtmlMessage message;
  std::vector<std::int64_t> ids;  // as generated
  bool complete = false;     // the model ended its answer itself
  bool read_again = false;   // the history could not be continued and was read from its start
  RunStats stats;
};

class ChatSession {
 public:
  ChatSession(const Model& model, const Tokenizer& tokenizer, ChatSettings settings);
  // `show` gets every event as it comes; `interrupted` is asked after every token. A UserError leaves the conversation as it was.
  ChatTurn ask(const std::string& text, const std::function<void(const XtmlEvent&)>& show, const std::function<bool()>& interrupted);
  void reset();
  std::string json() const;  // OpenAI-style, as `k3 render` reads it
  std::int64_t tokens() const { return static_cast<std::int64_t>(history_.size()); }

 private:
  std::vector<std::int64_t> unread(bool& read_again);  // ids to feed before the model answers
  void remember(const XtmlMessage& message);

  const Model& model_;
  const Tokenizer& tokenizer_;
  ChatSettings settings_;
  ChatFormat format_;
  StatePool pool_;
  Conversation conversation_;
  std::vector<std::int64_t> history_;  // ids fed to the slot, and behind them the last token when it was not fed yet
};

// Index of the first segment behind `known`, when the text of the segments begins with it and it ends between two segments.
std::optional<std::size_t> segments_behind(const std::vector<Segment>& segments, std::string_view known);

}  // namespace k3::cli
