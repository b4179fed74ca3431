#include "cli/chat_session.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace k3::cli {
namespace {

// Events of the model's tokens in either format; the im_ layout of Kimi-Linear knows only content.
class AnswerReader {
 public:
  AnswerReader(const Tokenizer& tokenizer, ChatFormat format, bool thinking) : tokenizer_(tokenizer), decoder_(tokenizer) {
    if (format == ChatFormat::xtml) xtml_.emplace(tokenizer, thinking ? XtmlParser::Start::think : XtmlParser::Start::response);
  }
  std::vector<XtmlEvent> push(TokenId id) {
    if (xtml_) return xtml_->push(id);
    if (tokenizer_.is_control(id)) {
      done_ = true;
      return content(decoder_.finish());
    }
    return content(decoder_.push(id));
  }
  std::vector<XtmlEvent> finish() { return xtml_ ? xtml_->finish() : content(decoder_.finish()); }
  bool done() const { return xtml_ ? xtml_->done() : done_; }

 private:
  static std::vector<XtmlEvent> content(std::string text) {
    if (text.empty()) return {};
    XtmlEvent event;
    event.kind = XtmlEvent::Kind::content;
    event.text = std::move(text);
    return {event};
  }
  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  std::optional<XtmlReader> xtml_;
  bool done_ = false;
};

std::string plain_text(const Message& message) {
  std::string text;
  for (const ContentPart& part : message.content) text += part.text;
  return text;
}

}  // namespace

std::optional<std::size_t> segments_behind(const std::vector<Segment>& segments, std::string_view known) {
  for (std::size_t index = 0; index < segments.size(); ++index) {
    if (known.empty()) return index;
    if (!known.starts_with(segments[index].text)) return std::nullopt;
    known.remove_prefix(segments[index].text.size());
  }
  if (known.empty()) return segments.size();
  return std::nullopt;
}

ChatSession::ChatSession(const Model& model, const Tokenizer& tokenizer, ChatSettings settings)
    : model_(model),
      tokenizer_(tokenizer),
      settings_(std::move(settings)),
      format_(chat_format_of(tokenizer)),
      pool_(StatePool::make(model.config, 1, settings_.context_tokens, model.device(), model.dtype())) {
  if (format_ == ChatFormat::im) {
    if (settings_.effort) throw_user("--effort {}: this model has no thinking channel; leave --effort out", *settings_.effort);
    settings_.thinking = false;
  }
  conversation_.effort = settings_.effort;
  conversation_.thinking = settings_.thinking;
  reset();
}

void ChatSession::reset() {
  pool_.clear(0);
  history_.clear();
  conversation_.messages.clear();
  if (!settings_.system.empty()) conversation_.messages.push_back(text_message("system", settings_.system));
}

std::vector<std::int64_t> ChatSession::unread(bool& read_again) {
  const std::vector<Segment> segments = render(conversation_, format_);
  std::string known;
  for (const std::int64_t id : history_) known += tokenizer_.token_bytes(static_cast<TokenId>(id));
  const std::optional<std::size_t> first = segments_behind(segments, known);
  read_again = !first;
  std::vector<std::int64_t> ids;
  if (first) ids.assign(history_.begin() + pool_.lengths[0], history_.end());
  const std::vector<Segment> rest(segments.begin() + static_cast<std::ptrdiff_t>(first.value_or(0)), segments.end());
  const std::vector<TokenId> encoded = to_ids(rest, tokenizer_);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return ids;
}

ChatTurn ChatSession::ask(const std::string& text, const std::function<void(const XtmlEvent&)>& show, const std::function<bool()>& interrupted) {
  if (text.empty()) throw_user("the question is empty");
  ChatTurn turn;
  conversation_.messages.push_back(text_message("user", text));
  std::vector<std::int64_t> ids;
  std::int64_t room = 0;
  try {
    ids = unread(turn.read_again);
    const std::int64_t held = turn.read_again ? 0 : pool_.lengths[0];
    room = std::min(settings_.max_tokens, settings_.context_tokens - held - static_cast<std::int64_t>(ids.size()));
    if (room < 1)
      throw_user("the conversation of {} tokens does not fit into the context of {}; /reset starts a new one, --context N allows more",
                 held + static_cast<std::int64_t>(ids.size()), settings_.context_tokens);
  } catch (const UserError&) {
    conversation_.messages.pop_back();
    throw;
  }
  if (turn.read_again) {
    pool_.clear(0);
    history_.clear();
  }
  history_.resize(pool_.lengths[0]);  // the unfed last token, if any, is the first of ids
  history_.insert(history_.end(), ids.begin(), ids.end());

  const Stopwatch watch;
  const Tensor row = prefill(model_, pool_, 0, ids);
  turn.stats.prompt_tokens = static_cast<std::int64_t>(ids.size());
  turn.stats.prefill_seconds = watch.seconds();
  AnswerReader reader(tokenizer_, format_, settings_.thinking);
  const auto take = [&](const std::vector<XtmlEvent>& events) {
    for (const XtmlEvent& event : events) {
      turn.message.add(event);
      show(event);
    }
  };
  continue_slot(model_, pool_, 0, row, settings_.sampling, 0, [&](const Sampled& token) {
    if (turn.stats.new_tokens == 0) turn.stats.first_token_seconds = watch.seconds();
    turn.stats.decode_seconds = watch.seconds() - turn.stats.first_token_seconds;
    ++turn.stats.new_tokens;
    history_.push_back(token.id);
    turn.ids.push_back(token.id);
    take(reader.push(static_cast<TokenId>(token.id)));
    turn.complete = reader.done() || token.id == model_.config.eos;
    return !turn.complete && turn.stats.new_tokens < room && !interrupted();
  });
  take(reader.finish());
  remember(turn.message);
  return turn;
}

void ChatSession::remember(const XtmlMessage& answer) {
  Message message = text_message("assistant", answer.content);
  message.reasoning = answer.reasoning;
  for (const XtmlMessage::Call& call : answer.calls) {
    ToolCall made;
    made.id = fmt::format("call_{}", message.calls.size() + 1);
    made.name = call.name;
    made.arguments = call.arguments_json();
    message.calls.push_back(made);
  }
  conversation_.messages.push_back(std::move(message));
}

std::string ChatSession::json() const {
  nlohmann::ordered_json out;
  out["messages"] = nlohmann::json::array();
  for (const Message& message : conversation_.messages) {
    nlohmann::ordered_json entry{{"role", message.role}, {"content", plain_text(message)}};
    if (!message.reasoning.empty()) entry["reasoning_content"] = message.reasoning;
    for (const ToolCall& call : message.calls)
      entry["tool_calls"].push_back({{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    out["messages"].push_back(std::move(entry));
  }
  if (!conversation_.thinking) out["thinking"] = false;
  if (conversation_.effort) out["thinking_effort"] = *conversation_.effort;
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace k3::cli
