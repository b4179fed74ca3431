// k3 tokenize, k3 detokenize: text to ids on one line, and back.
#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/id_list.h"
#include "cli/text_input.h"
#include "text/json_text.h"
#include "text/utf8.h"

namespace k3::cli {
namespace {

struct TokenizeOptions {
  TokenizerOptions tokenizer;
  std::string text, file;
  bool has_text = false, control = false, json_lines = false;
};

void tokenize(const TokenizeOptions& options) {
  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  const std::string source = options.has_text                              ? "--text"
                             : options.file.empty() || options.file == "-" ? "standard input"
                                                                           : options.file;
  const std::string input = options.has_text ? options.text : read_input(options.file);
  const auto line_of = [&](std::string_view text) {
    return ids_line(options.control ? tokenizer.encode_with_control(text) : tokenizer.encode(text));
  };
  require_utf8(input, source);
  if (!options.json_lines) return print_text(line_of(input));
  std::string out;
  std::size_t line = 0;
  for (std::size_t at = 0; at < input.size();) {
    const std::size_t end = std::min(input.find('\n', at), input.size());
    const std::string place = fmt::format("{}:{}", source, ++line);
    const JsonValue value = parse_json(std::string_view(input).substr(at, end - at), place);
    if (!value.is(JsonValue::Kind::string))
      throw_user("{}: is {}, wanted a JSON string on every line", place, json_kind_name(value.kind));
    out += line_of(value.text);
    at = end + 1;
  }
  print_text(out);
}

struct DetokenizeOptions {
  TokenizerOptions tokenizer;
  std::vector<std::string> words;  // ids; a folder may come first
  bool pieces = false;
};

void detokenize(DetokenizeOptions options) {
  if (!options.words.empty() && options.words.front() != "-" && std::filesystem::is_directory(options.words.front())) {
    if (!options.tokenizer.model.empty() || !options.tokenizer.tokenizer.empty())
      throw_user("k3 detokenize: give either {} or --model/--tokenizer, not both", options.words.front());
    options.tokenizer.model = options.words.front();
    options.words.erase(options.words.begin());
  }
  const bool from_input = options.words.empty() || options.words == std::vector<std::string>{"-"};
  const std::string text = from_input ? read_input("-") : fmt::format("{}", fmt::join(options.words, " "));
  const Tokenizer tokenizer = open_tokenizer(options.tokenizer);
  std::vector<TokenId> ids;
  for (const std::int64_t id : parse_ids(text, from_input ? "standard input" : "ids")) {
    if (id < 0 || id >= tokenizer.vocab())
      throw_user("token id {} is outside the vocabulary 0..{}; was it made with another tokenizer?", id,
                 tokenizer.vocab() - 1);
    ids.push_back(static_cast<TokenId>(id));
  }
  if (!options.pieces) return print_text(tokenizer.decode(ids));
  std::string out;
  for (const TokenId id : ids)
    out += fmt::format("{:>7} {}\n", id, write_json_string(replace_invalid_utf8(tokenizer.token_bytes(id))));
  print_text(out);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  const auto to_ids = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "text to token ids, on one line");
  command->add_option("MODEL", to_ids->tokenizer.model, "the same as --model")->type_name("DIR");
  add_tokenizer_options(*command, to_ids->tokenizer);
  CLI::Option* text = command->add_option("--text", to_ids->text, "the text itself");
  command->add_option("--file", to_ids->file, "a UTF-8 file, - for standard input (the default)")->excludes(text);
  command->add_flag("--control", to_ids->control, "names of control tokens in the text become those tokens");
  command->add_flag("--json-lines", to_ids->json_lines,
                    "every line of the input is a JSON string; a line of ids for each");
  command->footer(
      "Examples:\n"
      "  k3 tokenize --text \"What is 17 + 25?\"            with the bundled model's tokenizer\n"
      "  k3 tokenize ~/Kimi-K3 --file prompt.txt\n"
      "  echo -n hello | k3 tokenize --tokenizer DIR      DIR holds tiktoken.model; a K3-sized one gets K3's control "
      "tokens\n"
      "  k3 tokenize --control --text '<|close|>think<|sep|>'\n"
      "Without --control no text becomes a control token, whatever it spells.");
  command->callback([to_ids, text] {
    to_ids->has_text = text->count() > 0;
    tokenize(*to_ids);
  });

  const auto to_text = std::make_shared<DetokenizeOptions>();
  CLI::App* back = app.add_subcommand("detokenize", "token ids to text");
  back->add_option(
      "IDS", to_text->words,
      "ids with blanks or commas between, - for standard input (the default); a model folder may come first");
  add_tokenizer_options(*back, to_text->tokenizer);
  back->add_flag("--pieces", to_text->pieces, "one token a line: its id and its text as a JSON string");
  back->footer(
      "Examples:\n"
      "  k3 detokenize 9 103 54\n"
      "  k3 tokenize --file prompt.txt | k3 detokenize        gives prompt.txt back\n"
      "  k3 tokenize --text unbelievable | k3 detokenize --pieces\n"
      "  k3 detokenize --tokenizer DIR 163588,39964,163589");
  back->callback([to_text] { detokenize(*to_text); });
}

}  // namespace k3::cli
