// A conversation continued on its state must equal the same conversation read from its start, and must read only what is new.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/chat_session.h"
#include "support/files.h"

namespace k3::cli {
namespace {

struct Talker {
  Tokenizer tokenizer;
  Model model;

  static Talker make() {
    const std::vector<std::string> documents = {"What is seventeen and twenty five? The answer is forty two. thinking effort message system user assistant"};
    BpeTrainOptions options;
    options.ranks = 280;
    Tokenizer tokenizer = Tokenizer::parse(train_bpe(documents, options), "test ranks");
    ModelConfig config = read_config(test::data("golden/k3-tiny"));
    config.vocab = tokenizer.vocab();
    config.packed_experts = false;
    config.max_context = 4096;
    config.eos = tokenizer.control("<|end_of_msg|>");
    LoadOptions load;
    load.dtype = at::kDouble;
    load.keep_experts_packed = false;
    Talker talker{std::move(tokenizer), random_model(config, load, 3)};
    // Only ASCII is ever the most probable token, as from a trained model: noise would break the format and hide the continued state.
    for (std::int64_t id = 0; id < config.vocab; ++id) {
      const std::string bytes = talker.tokenizer.token_bytes(static_cast<TokenId>(id));
      const bool ascii = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; });
      if (!ascii || talker.tokenizer.is_control(static_cast<TokenId>(id))) talker.model.head[id].zero_();
    }
    return talker;
  }
};

ChatSettings settings(std::int64_t max_tokens) {
  ChatSettings chosen;
  chosen.system = "Be brief.";
  chosen.effort = "low";
  chosen.max_tokens = max_tokens;
  chosen.context_tokens = 2048;
  return chosen;
}

const auto ignore = [](const XtmlEvent&) {};
const auto never = [] { return false; };

TEST(ChatSession, AFurtherTurnReadsOnlyWhatIsNewAndAnswersTheSame) {
  const Talker talker = Talker::make();
  ChatSession session(talker.model, talker.tokenizer, settings(6));
  session.ask("What is seventeen?", ignore, never);
  const std::int64_t before = session.tokens();  // one of them not yet fed
  const ChatTurn second = session.ask("And twenty five?", ignore, never);
  EXPECT_EQ(before - 1 + second.stats.prompt_tokens + second.stats.new_tokens, session.tokens());
  EXPECT_FALSE(second.read_again);

  // The same history in one piece.
  const Conversation conversation = parse_conversation(session.json(), "saved");
  Conversation asked = conversation;
  asked.messages.pop_back();
  const std::vector<TokenId> rendered = to_ids(render(asked, ChatFormat::xtml), talker.tokenizer);
  const std::vector<std::int64_t> ids(rendered.begin(), rendered.end());
  StatePool pool = StatePool::make(talker.model.config, 1, 2048, at::kCPU, at::kDouble);
  std::vector<std::int64_t> answer;
  continue_slot(talker.model, pool, 0, prefill(talker.model, pool, 0, ids), {}, 0, [&](const Sampled& token) {
    answer.push_back(token.id);
    return static_cast<std::int64_t>(answer.size()) < second.stats.new_tokens;
  });
  EXPECT_EQ(second.ids, answer);
}

TEST(ChatSession, ResetForgetsEverything) {
  const Talker talker = Talker::make();
  ChatSession session(talker.model, talker.tokenizer, settings(4));
  const ChatTurn first = session.ask("What?", ignore, never);
  session.ask("And?", ignore, never);
  session.reset();
  EXPECT_EQ(session.tokens(), 0);
  const ChatTurn again = session.ask("What?", ignore, never);
  EXPECT_EQ(again.message.reasoning, first.message.reasoning);
  EXPECT_EQ(again.stats.prompt_tokens, first.stats.prompt_tokens);
}

TEST(ChatSession, AnInterruptedAnswerIsClosedAndTheTalkGoesOn) {
  const Talker talker = Talker::make();
  ChatSession session(talker.model, talker.tokenizer, settings(8));
  int tokens = 0;
  const ChatTurn stopped = session.ask("What?", ignore, [&] { return ++tokens == 3; });
  EXPECT_FALSE(stopped.complete);
  EXPECT_EQ(stopped.stats.new_tokens, 3);
  EXPECT_GT(session.ask("And?", ignore, never).stats.new_tokens, 0);
}

TEST(ChatSession, RefusesWhatDoesNotFitAndStaysUsable) {
  const Talker talker = Talker::make();
  ChatSettings small = settings(4);
  small.context_tokens = 400;
  ChatSession session(talker.model, talker.tokenizer, small);
  test::expect_user_error([&] { session.ask(std::string(2000, 'x'), ignore, never); }, {"context of 400", "/reset"});
  test::expect_user_error([&] { session.ask("", ignore, never); }, {"empty"});
  EXPECT_GT(session.ask("What?", ignore, never).stats.new_tokens, 0);
}

}  // namespace
}  // namespace k3::cli
