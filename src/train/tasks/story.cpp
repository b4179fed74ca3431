#include "train/tasks/story.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"

namespace k3::train {

namespace {

constexpr double kAside = 0.09;      // how often ~ becomes a sentence
constexpr double kPronoun = 0.65;    // {A.he} as a pronoun rather than a name

// Position of the bracket that closes the one at `open`; only round ones nest.
std::size_t closing(std::string_view text, std::size_t open) {
  const char begin = text[open], end = begin == '(' ? ')' : begin == '[' ? ']' : begin == '{' ? '}' : '>';
  std::size_t depth = 0, at = open;
  for (; at < text.size(); ++at) {
    if (begin == '(' && text[at] == '(') ++depth;
    if (text[at] == end && at > open && (begin != '(' || --depth == 0)) break;
  }
  K3_CHECK(at < text.size(), "pattern '{}' has an open bracket", text);
  return at;
}

// Parts between the bars that stand in no bracket.
std::vector<std::string_view> split_bars(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    if (at == text.size() || (text[at] == '|' && depth == 0)) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at + 1;
    } else if (text[at] == '(' || text[at] == '[') {
      ++depth;
    } else if (text[at] == ')' || text[at] == ']') {
      --depth;
    }
  }
  return parts;
}

// Capital letters where sentences begin.
std::string with_capitals(std::string text) {
  bool begins = true;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char& byte = text[at];
    if (begins && byte >= 'a' && byte <= 'z') byte = static_cast<char>(byte - 'a' + 'A');
    if (byte != ' ' && byte != '\n') begins = false;
    if ((byte == '.' || byte == '?' || byte == '!') && at + 1 < text.size() && text[at + 1] == ' ') begins = true;
  }
  return text;
}

}  // namespace

std::string StoryWriter::resolve(std::string_view pattern) {
  std::string flat;
  for (std::size_t at = 0; at < pattern.size();) {
    const char byte = pattern[at];
    if (byte == '~') {
      if (random_.chance(kAside)) flat += " " + resolve("<aside>");
      ++at;
      continue;
    }
    if (byte != '(' && byte != '<' && byte != '[' && byte != '{') {
      flat += byte;
      ++at;
      continue;
    }
    const std::size_t end = closing(pattern, at);
    const std::string_view inside = pattern.substr(at + 1, end - at - 1);
    if (byte == '(') {
      flat += resolve(random_.pick(split_bars(inside)));
    } else if (byte == '<') {
      const std::size_t space = inside.find(' ');
      std::string rule(rule_alternative(random_, inside.substr(0, space), words_.food));
      for (std::size_t mark = rule.find('#'); mark != std::string::npos; mark = rule.find('#'))
        rule.replace(mark, 1, fmt::format("{{{}}}", inside.substr(space + 1)));
      flat += resolve(rule);
    } else {
      const auto word = byte == '{' ? words_.slots.find(inside) : words_.slots.end();
      if (word != words_.slots.end() && word->second.find('[') != std::string::npos)
        flat += word->second;  // a verb with its forms
      else
        flat += pattern.substr(at, end - at + 1);
    }
    at = end + 1;
  }
  return flat;
}

std::string StoryWriter::mention(Actor& actor, bool& mentioned, std::string_view form) {
  const bool first = !mentioned;
  const Actor& other = &actor == &words_.a ? words_.b : words_.a;
  const bool other_mentioned = &actor == &words_.a ? b_mentioned_ : a_mentioned_;
  if (!actor.relation.empty() && !a_mentioned_ && !replies_) {  // nobody to refer "his" to: Tom's brother
    const std::string owner = mention(words_.a, a_mentioned_, "s");
    mentioned = true;
    last_ = &actor;
    return fmt::format("{} {}{}", owner, actor.relation, form == "s" ? "'s" : "");
  }
  mentioned = true;
  if (form == "he" || form.empty()) last_ = &actor;
  if (replies_) return form == "s" ? actor.reply_s : actor.reply;
  const bool i_or_we = actor.he == actor.later;
  const bool clear = !first && !(other_mentioned && other.he == actor.he);
  const bool pronoun = i_or_we || (clear && words_.pronouns && random_.chance(kPronoun));
  if (form == "he") return pronoun ? actor.he : first ? actor.first : actor.later;
  if (form == "him") return i_or_we || clear ? actor.him : first ? actor.first : actor.later;
  if (form == "his" && (i_or_we || clear)) return actor.his;
  if (form == "s" || form == "his") return i_or_we ? actor.s : first ? actor.first + "'s" : actor.s;
  return first ? actor.first : actor.later;
}

std::string StoryWriter::slot(std::string_view name) {
  if (name.starts_with('A')) return mention(words_.a, a_mentioned_, name.size() > 2 ? name.substr(2) : "");
  if (name.starts_with('B')) return mention(words_.b, b_mentioned_, name.size() > 2 ? name.substr(2) : "");
  if (name == "they" || name == "their") {  // the two of them, and the asker may be one
    const bool asker = words_.a.he == "I" || words_.a.he == "we", own = name == "their";
    if (!asker) return std::string(name);
    return replies_ ? (own ? "your" : "you") : (own ? "our" : "we");
  }
  const auto found = words_.slots.find(name);
  K3_CHECK(found != words_.slots.end(), "a story wants a slot '{}'", name);
  return found->second;
}

std::string StoryWriter::verb(std::string_view forms, std::string_view rest) {
  if (forms.starts_with('=')) return std::string(split_bars(forms.substr(1))[words_.past ? 1 : 0]);
  const Actor* who = last_;
  if (forms.starts_with('>')) {
    forms.remove_prefix(1);
    const std::size_t next = rest.find('{');
    K3_CHECK(next != std::string_view::npos && next + 1 < rest.size(), "verb '{}' has nobody after it", forms);
    who = rest[next + 1] == 'B' ? &words_.b : &words_.a;
  }
  K3_CHECK(who != nullptr, "verb '{}' has nobody before it", forms);
  const bool asker = who->he == "I" || who->he == "we", you = replies_ && asker;
  if (forms == "be" || forms == "am" || forms == "was") {
    if (forms == "was" || (forms == "be" && words_.past)) return you || !who->one ? "were" : "was";
    return you || !who->one ? "are" : who->base ? "am" : "is";
  }
  const auto parts = split_bars(forms);
  K3_CHECK(parts.size() == 2 || parts.size() == 3, "verb '{}' has neither two nor three forms", forms);
  if (parts.size() == 3 && words_.past) return std::string(parts[2]);
  return std::string(parts[who->base || you ? 0 : 1]);
}

std::string StoryWriter::spell(std::string_view flat) {
  std::string out;
  for (std::size_t at = 0; at < flat.size();) {
    if (flat[at] != '{' && flat[at] != '[') {
      out += flat[at++];
      continue;
    }
    const std::size_t end = closing(flat, at);
    const std::string_view inside = flat.substr(at + 1, end - at - 1);
    out += flat[at] == '{' ? slot(inside) : verb(inside, flat.substr(end + 1));
    at = end + 1;
  }
  return with_capitals(std::move(out));
}

std::string StoryWriter::write(std::string_view pattern) {
  replies_ = false;
  return spell(resolve(pattern));
}

std::string StoryWriter::reply(std::string_view pattern) {
  replies_ = true;
  last_ = nullptr;
  return spell(resolve(pattern));
}

}  // namespace k3::train
