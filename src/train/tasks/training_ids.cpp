// The prefix of a conversation up to an assistant turn, rendered with the generation prefix, is also the beginning of
// the complete rendering; what the complete one has more, up to the end of that message, is what the model must write.
#include <algorithm>

#include "base/error.h"
#include "train/tasks/generator.h"

namespace k3::train {

namespace {

void append(TrainingIds& out, const std::vector<TokenId>& ids, bool loss) {
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.loss.insert(out.loss.end(), ids.size(), loss ? 1 : 0);
}

std::vector<Segment> slice(const std::vector<Segment>& segments, std::size_t begin, std::size_t end) {
  return {segments.begin() + static_cast<std::ptrdiff_t>(begin), segments.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

TrainingIds to_training_ids(const Document& document, const Tokenizer& tokenizer) {
  TrainingIds out;
  if (!document.conversation) {
    append(out, tokenizer.encode(document.text), true);
    append(out, {tokenizer.control("[EOS]")}, true);
    return out;
  }
  Conversation part = *document.conversation;
  const std::vector<Message> messages = part.messages;
  const ChatFormat format = chat_format_of(tokenizer);
  part.add_generation_prefix = false;
  const std::vector<Segment> all = render(part, format);
  std::size_t done = 0;
  for (std::size_t at = 0; at < messages.size(); ++at) {
    if (messages[at].role != "assistant") continue;
    part.messages.assign(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(at));
    part.add_generation_prefix = true;
    const std::size_t begin = render(part, format).size();
    part.messages.push_back(messages[at]);
    part.add_generation_prefix = false;
    const std::size_t end = render(part, format).size();
    K3_CHECK(begin < end && end <= all.size(), "the rendering of {} messages is not a prefix of the whole conversation",
             at + 1);
    append(out, to_ids(slice(all, done, begin), tokenizer), false);
    append(out, to_ids(slice(all, begin, end), tokenizer), true);
    done = end;
  }
  append(out, to_ids(slice(all, done, all.size()), tokenizer), false);
  return out;
}

}  // namespace k3::train
