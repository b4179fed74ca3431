// k3 render: a conversation in OpenAI-style JSON as the text or the token ids that the model sees.
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/text_input.h"
#include "text/chat.h"

namespace k3::cli {
namespace {

struct RenderOptions {
  TokenizerOptions tokenizer;
  std::string file, format;
  bool ids = false;
};

void render_conversation(const RenderOptions& options) {
  const Conversation conversation =
      parse_conversation(read_input(options.file), options.file == "-" ? "standard input" : options.file);
  std::optional<ChatFormat> format;
  if (!options.format.empty()) format = options.format == "im" ? ChatFormat::im : ChatFormat::xtml;
  const bool names_tokenizer = !options.tokenizer.model.empty() || !options.tokenizer.tokenizer.empty();
  if (!options.ids && !names_tokenizer)
    return print_text(to_text(render(conversation, format.value_or(ChatFormat::xtml))));

  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  const ChatFormat own = chat_format_of(tokenizer);
  if (format.value_or(own) != own)
    throw_user("--format {}: the tokenizer's control tokens are those of the other layout; leave --format out",
               options.format);
  const std::vector<Segment> segments = render(conversation, own);
  print_text(options.ids ? ids_line(to_ids(segments, tokenizer)) : to_text(segments));
}

}  // namespace

void add_render(CLI::App& app) {
  const auto options = std::make_shared<RenderOptions>();
  CLI::App* command = app.add_subcommand("render", "a conversation as the text or the ids that the model sees");
  command->add_option("CONVERSATION", options->file, "JSON file with messages, tools and so on; - for standard input")
      ->required();
  command->add_flag("--ids", options->ids, "token ids on one line instead of text");
  add_tokenizer_options(*command, options->tokenizer);
  command
      ->add_option("--format", options->format,
                   "xtml (Kimi K3) or im (Kimi-Linear); default: what the tokenizer has, else xtml")
      ->check(CLI::IsMember({"xtml", "im"}));
  command->footer(
      "Examples:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"2+2?\"}], \"thinking_effort\": \"low\"}' | k3 "
      "render -\n"
      "  k3 render chat.json --ids\n"
      "  k3 render chat.json --ids --tokenizer DIR | k3 detokenize --tokenizer DIR --pieces\n"
      "  k3 render chat.json --format im\n"
      "Fields: messages, tools, tool_choice, thinking, thinking_effort, response_format, add_generation_prompt; an "
      "image part also\n"
      "carries width and height in pixels. Fields of a chat request that only steer sampling are skipped.");
  command->callback([options] { render_conversation(*options); });
}

}  // namespace k3::cli
