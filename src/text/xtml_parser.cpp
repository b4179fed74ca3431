#include "text/xtml_parser.h"

#include "text/json_text.h"
#include "text/xtml.h"

namespace k3 {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::size_t kLongestHeader = 4096;  // bytes between O or C and S; more is no marker and becomes text again

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// `tag key="value" key="value"`; what is malformed is left out.
struct Header {
  std::string tag;
  xtml::Attributes attributes;

  explicit Header(std::string_view text) {
    text = trim(text);
    const std::size_t tag_end = std::min(text.find_first_of(kBlanks), text.size());
    tag = text.substr(0, tag_end);
    text.remove_prefix(tag_end);
    while (true) {
      const std::size_t equals = text.find("=\"");
      const std::size_t quote = equals == std::string_view::npos ? equals : text.find('"', equals + 2);
      if (quote == std::string_view::npos) return;
      attributes.emplace_back(trim(text.substr(0, equals)),
                              xtml::unescape_attribute(text.substr(equals + 2, quote - equals - 2)));
      text.remove_prefix(quote + 1);
    }
  }

  std::string attribute(std::string_view key) const {
    for (const auto& [name, value] : attributes)
      if (name == key) return value;
    return {};
  }
};

}  // namespace

struct XtmlParser::State {
  enum class Place { think, response, between, tools, call, argument, done };
  enum class Marker { none, open, close };
  using Kind = XtmlEvent::Kind;

  explicit State(Start start)
      : place(start == Start::think ? Place::think : Place::response), only_reasoning(start == Start::think) {}

  Place place;
  Marker marker = Marker::none;  // a marker whose S has not come yet
  std::string header;            // its text so far
  std::string blanks;            // blank text outside every channel, shown only when something follows
  bool stray_text = false;       // something did
  bool only_reasoning;           // still in the first think: nothing else was opened, it was not closed
  bool ended = false;            // `end` was given
  int calls = 0;
  std::string key, type;  // of the open argument
  std::vector<XtmlEvent> events;

  void emit(Kind kind, std::string text = {}) {
    XtmlEvent event;
    event.kind = kind;
    event.text = std::move(text);
    if (kind == Kind::argument_begin || kind == Kind::argument || kind == Kind::argument_end)
      event.key = key, event.type = type;
    if (kind != Kind::reasoning && kind != Kind::content && kind != Kind::reasoning_is_content && kind != Kind::end)
      event.index = calls;
    events.push_back(std::move(event));
  }

  void go(Place next) {
    place = next;
    blanks.clear();
    stray_text = false;
  }

  void body(std::string_view text) {
    if (text.empty()) return;
    switch (place) {
      case Place::think: return emit(Kind::reasoning, std::string(text));
      case Place::response: return emit(Kind::content, std::string(text));
      case Place::argument: return emit(Kind::argument, std::string(text));
      case Place::done: return;
      case Place::between:
      case Place::tools:
      case Place::call: break;
    }
    blanks += text;
    stray_text = stray_text || !trim(text).empty();
    if (!stray_text) return;
    emit(Kind::content, std::move(blanks));
    blanks.clear();
  }

  void text(std::string_view piece) {
    if (place == Place::done) return;
    if (marker == Marker::none) return body(piece);
    header += piece;
    if (header.size() <= kLongestHeader) return;
    marker = Marker::none;
    body(std::exchange(header, {}));
  }

  void leave_argument() {
    if (place != Place::argument) return;
    emit(Kind::argument_end);
    go(Place::call);
  }
  void leave_call() {
    leave_argument();
    if (place != Place::call) return;
    emit(Kind::call_end);
    go(Place::tools);
  }
  void leave_channel() {
    leave_call();
    go(Place::between);
  }

  void finish_message() {
    leave_channel();
    go(Place::done);
    end();
  }
  void end() {
    if (!ended) emit(Kind::end);
    ended = true;
  }

  void opened(const Header& header) {
    const std::string& tag = header.tag;
    if (tag == "think" || tag == "response" || tag == "tools") {
      const Place next = tag == "think" ? Place::think : tag == "response" ? Place::response : Place::tools;
      if (place == next) return;  // the marker of the channel we are in, written again
      only_reasoning = false;
      leave_channel();
      go(next);
    } else if (tag == "call") {
      only_reasoning = false;
      leave_channel();
      ++calls;
      go(Place::call);
      emit(Kind::call_begin, header.attribute("tool"));
    } else if (tag == "argument" && (place == Place::call || place == Place::argument)) {
      leave_argument();
      key = header.attribute("key");
      type = header.attribute("type");
      go(Place::argument);
      emit(Kind::argument_begin);
    }
  }

  void closed(const Header& header) {
    const std::string& tag = header.tag;
    if (only_reasoning && (tag == "response" || tag == "message")) emit(Kind::reasoning_is_content);
    if (tag == "think" || tag == "response") {
      if (place != Place::think && place != Place::response) return;
      only_reasoning = false;
      leave_channel();
    } else if (tag == "tools") {
      if (place == Place::tools || place == Place::call || place == Place::argument) leave_channel();
    } else if (tag == "call") {
      leave_call();
    } else if (tag == "argument") {
      leave_argument();
    } else if (tag == "message") {
      finish_message();
    }
  }

  void finish_marker() {
    const Marker finished = std::exchange(marker, Marker::none);
    if (finished == Marker::none) return;
    const Header parsed(std::exchange(header, {}));
    if (finished == Marker::open) opened(parsed);
    else closed(parsed);
  }

  void control(std::string_view token) {
    if (place == Place::done) return;
    const bool ends_message = token == xtml::kEndOfMessage || token == "[EOS]";
    if (!ends_message && token != xtml::kOpen && token != xtml::kClose && token != xtml::kSep) return;
    finish_marker();  // an S was expected: another token of structure does as well
    if (place == Place::done) return;
    if (token == xtml::kOpen) marker = Marker::open;
    if (token == xtml::kClose) marker = Marker::close;
    if (ends_message) finish_message();
  }

  void finish() {
    if (marker == Marker::close) finish_marker();
    marker = Marker::none;
    header.clear();
    end();
  }
};

XtmlParser::XtmlParser(Start start) : state_(std::make_unique<State>(start)) {}
XtmlParser::~XtmlParser() = default;
XtmlParser::XtmlParser(XtmlParser&&) noexcept = default;
XtmlParser& XtmlParser::operator=(XtmlParser&&) noexcept = default;

std::vector<XtmlEvent> XtmlParser::control(std::string_view token) {
  state_->control(token);
  return std::exchange(state_->events, {});
}

std::vector<XtmlEvent> XtmlParser::text(std::string_view piece) {
  state_->text(piece);
  return std::exchange(state_->events, {});
}

std::vector<XtmlEvent> XtmlParser::finish() {
  state_->finish();
  return std::exchange(state_->events, {});
}

bool XtmlParser::done() const { return state_->place == State::Place::done; }

std::vector<XtmlEvent> XtmlReader::push(TokenId id) {
  if (!tokenizer_->is_control(id)) return parser_.text(decoder_.push(id));
  std::vector<XtmlEvent> events = parser_.text(decoder_.finish());
  std::vector<XtmlEvent> more = parser_.control(tokenizer_->token_bytes(id));
  events.insert(events.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return events;
}

std::vector<XtmlEvent> XtmlReader::finish() {
  std::vector<XtmlEvent> events = parser_.text(decoder_.finish());
  std::vector<XtmlEvent> more = parser_.finish();
  events.insert(events.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return events;
}

void XtmlMessage::add(const XtmlEvent& event) {
  using Kind = XtmlEvent::Kind;
  switch (event.kind) {
    case Kind::reasoning: reasoning += event.text; break;
    case Kind::content: content += event.text; break;
    case Kind::reasoning_is_content: content = std::exchange(reasoning, {}) + content; break;
    case Kind::call_begin: calls.push_back({event.text, {}, false}); break;
    case Kind::argument_begin: calls.back().arguments.push_back({event.key, event.type, {}}); break;
    case Kind::argument: calls.back().arguments.back().value += event.text; break;
    case Kind::argument_end: break;
    case Kind::call_end: calls.back().complete = true; break;
    case Kind::end: break;
  }
}

void XtmlMessage::add(const std::vector<XtmlEvent>& events) {
  for (const XtmlEvent& event : events) add(event);
}

std::string XtmlMessage::Call::arguments_json() const {
  std::string out;
  for (const Argument& argument : arguments) {
    const JsonResult parsed = parse_json_prefix(argument.value);
    const bool is_json = parsed.ok && trim(std::string_view(argument.value).substr(parsed.end)).empty();
    const std::string value =
        argument.type != "string" && is_json ? std::string(parsed.value.literal) : write_json_string(argument.value);
    out += (out.empty() ? "" : ", ") + write_json_string(argument.key) + ": " + value;
  }
  return "{" + out + "}";
}

}  // namespace k3
