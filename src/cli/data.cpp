// k3 data: look at what the generators make, and train a vocabulary on text, books and generated documents.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"
#include "text/chat.h"
#include "text/control_tokens.h"
#include "text/tokenizer.h"
#include "train/tasks/generator.h"
#include "train/text_source.h"

namespace k3::cli {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string text_of(const Message& message) {
  std::string text;
  for (const ContentPart& part : message.content) text += part.text;
  return text;
}

Json as_json(const Message& message) {
  Json out = {{"role", message.role}};
  if (!message.tool_call_id.empty()) out["tool_call_id"] = message.tool_call_id;
  out["content"] = text_of(message);
  if (message.role == "assistant") out["reasoning_content"] = message.reasoning;
  for (const ToolCall& call : message.calls)
    out["tool_calls"].push_back({{"id", call.id},
                                 {"type", "function"},
                                 {"function", {{"name", call.name}, {"arguments", Json::parse(call.arguments)}}}});
  return out;
}

// The same keys that k3 render and conversation sources of recipes read.
Json as_json(const train::Document& document) {
  if (!document.conversation) return {{"text", document.text}};
  const Conversation& conversation = *document.conversation;
  Json out;
  for (const Message& message : conversation.messages) out["messages"].push_back(as_json(message));
  if (!conversation.tools_json.empty()) out["tools"] = Json::parse(conversation.tools_json);
  out["thinking"] = conversation.thinking;
  if (conversation.effort) out["thinking_effort"] = *conversation.effort;
  return out;
}

struct DocumentFlags {
  std::string name, split = "train", out, filler;
  std::int64_t count = 10;
  std::uint64_t seed = 1;
  bool rendered = false, list = false;
};

std::shared_ptr<const train::Filler> read_filler(const std::string& path) {
  if (path.empty()) return nullptr;
  return std::make_shared<const train::Filler>(train::make_filler(train::read_documents(path)));
}

void generate_documents(const DocumentFlags& flags) {
  if (flags.list) {
    for (const train::GeneratorName& generator : train::generator_names())
      fmt::print("{:<20} {}\n", generator.name, generator.summary);
    return;
  }
  if (flags.name.empty())
    throw_user("data generate wants the name of a generator; `k3 data generate --list` shows them");
  const auto generator = train::make_generator(flags.name, flags.seed,
                                               flags.split == "heldout" ? train::Split::heldout : train::Split::train,
                                               read_filler(flags.filler));
  std::unique_ptr<AtomicFile> file;
  if (!flags.out.empty()) file = std::make_unique<AtomicFile>(flags.out);
  for (std::int64_t at = 0; at < flags.count; ++at) {
    const train::Document document = generator->next();
    std::string line;
    if (flags.rendered)
      line = (document.conversation ? to_text(render(*document.conversation, ChatFormat::xtml)) : document.text) + "\n";
    else
      line = as_json(document).dump();
    line += '\n';
    if (file)
      file->write(line);
    else
      fmt::print("{}", line);
  }
  if (file) file->commit();
}

struct VocabFlags {
  std::int64_t ranks = 3840, megabytes = 30;
  bool split_digits = false;
  std::string out;
  std::vector<std::string> generated, files;
  std::uint64_t seed = 1;
};

// Text of one document as the pieces that are encoded one by one; control tokens are no text.
void add_document(std::vector<std::string>& pieces, const train::Document& document) {
  if (!document.conversation) {
    pieces.push_back(document.text);
    return;
  }
  for (Segment& segment : render(*document.conversation, ChatFormat::xtml))
    if (!segment.control) pieces.push_back(std::move(segment.text));
}

void add_file(std::vector<std::string>& pieces, const std::string& path, std::size_t limit) {
  std::size_t taken = 0;
  const bool lines = path.ends_with(".jsonl") || path.ends_with(".jsonl.zst");
  if (!lines) {
    pieces.push_back(train::read_text(path).substr(0, limit));
    return;
  }
  std::vector<std::string> texts = train::read_documents(path);
  std::size_t total = 0;
  for (const std::string& text : texts) total += text.size();
  const double share =
      total <= limit ? 1.0
                     : static_cast<double>(limit) / static_cast<double>(total);  // the beginning of every document
  for (std::string& text : texts) {
    text.resize(static_cast<std::size_t>(share * static_cast<double>(text.size())));
    taken += text.size();
    pieces.push_back(std::move(text));
  }
}

std::string tokenizer_config(std::int64_t ranks) {
  const std::vector<std::string> names = control_token_names(ranks, "", "tokenizer_config.json");
  Json config, decoder;
  for (std::size_t offset = 0; offset < names.size(); ++offset) {
    const bool special = names[offset] != "<|open|>" && names[offset] != "<|close|>" && names[offset] != "<|sep|>";
    decoder[fmt::to_string(ranks + static_cast<std::int64_t>(offset))] = {
        {"content", names[offset]}, {"lstrip", false},      {"normalized", false},
        {"rstrip", false},          {"single_word", false}, {"special", special}};
  }
  config["added_tokens_decoder"] = decoder;
  config["bos_token"] = "[BOS]";
  config["clean_up_tokenization_spaces"] = false;
  config["eos_token"] = "[EOS]";
  config["pad_token"] = "[PAD]";
  config["tokenizer_class"] = "TikTokenTokenizer";
  config["unk_token"] = "[UNK]";
  return config.dump(1) + "\n";
}

void train_vocabulary(const VocabFlags& flags) {
  if (flags.files.empty() && flags.generated.empty())
    throw_user("data vocab wants text: name files, or --generate NAME=COUNT");
  const auto limit = static_cast<std::size_t>(flags.megabytes) << 20;
  std::vector<std::string> pieces;
  for (const std::string& file : flags.files) add_file(pieces, file, limit);
  for (const std::string& wanted : flags.generated) {
    const std::size_t equals = wanted.find('=');
    std::int64_t count = 0;
    if (equals != std::string::npos) count = std::atoll(wanted.c_str() + equals + 1);
    if (count <= 0) throw_user("--generate {}: write NAME=COUNT, for example --generate tools=5000", wanted);
    const auto generator = train::make_generator(wanted.substr(0, equals), flags.seed, train::Split::train);
    for (std::int64_t at = 0; at < count; ++at) add_document(pieces, generator->next());
  }
  std::size_t bytes = 0;
  for (const std::string& piece : pieces) bytes += piece.size();
  BpeTrainOptions options;
  options.ranks = flags.ranks;
  options.split_digits = flags.split_digits;
  options.max_bytes = static_cast<std::int64_t>(bytes) + 1;
  const std::string ranks = train_bpe(pieces, options);
  fs::create_directories(flags.out);
  write_file_atomic(fs::path(flags.out) / "tiktoken.model", ranks);
  write_file_atomic(fs::path(flags.out) / "tokenizer_config.json", tokenizer_config(flags.ranks));
  fmt::print("{}: {} ranks and {} control tokens from {:.1f} MB of text\n", flags.out, flags.ranks, kControlTokens,
             static_cast<double>(bytes) * 1e-6);
}

}  // namespace

void add_data(CLI::App& app) {
  auto* data = app.add_subcommand("data", "generated documents and vocabulary training");
  data->require_subcommand(1);
  data->footer(
      "Examples:\n"
      "  k3 data generate --list                          the generators\n"
      "  k3 data generate wordproblems --count 3 --render documents as the model sees them\n"
      "  k3 data vocab --ranks 3840 --split-digits --generate tools=5000 --out my-model books.jsonl.zst");

  auto document_flags = std::make_shared<DocumentFlags>();
  auto* make = data->add_subcommand("generate", "print documents of a generator, one JSON object a line");
  make->add_option("NAME", document_flags->name, "generator; --list shows them");
  make->add_flag("--list", document_flags->list, "list the generators");
  make->add_option("--count", document_flags->count, "documents")->check(CLI::Range(1, 1 << 30))->capture_default_str();
  make->add_option("--seed", document_flags->seed, "the same seed gives the same documents")->capture_default_str();
  make->add_option("--split", document_flags->split, "train or heldout; no problem is in both")
      ->check(CLI::IsMember({"train", "heldout"}))
      ->capture_default_str();
  make->add_option("--filler", document_flags->filler, "jsonl of books to hide passkeys in");
  make->add_option("--out", document_flags->out, "file to write (default: standard output)");
  make->add_flag("--render", document_flags->rendered, "as text with control tokens instead of JSON");
  make->footer(
      "Examples:\n"
      "  k3 data generate arithmetic --count 5\n"
      "  k3 data generate tools --count 100 --split heldout --seed 7 --out tools.jsonl\n"
      "  k3 data generate passkey-long --count 1 --filler books.jsonl.zst --render");
  make->callback([document_flags] { generate_documents(*document_flags); });

  auto vocab_flags = std::make_shared<VocabFlags>();
  auto* vocab = data->add_subcommand("vocab", "train a BPE vocabulary: tiktoken.model and tokenizer_config.json");
  vocab->add_option("FILE", vocab_flags->files, "jsonl with a field \"text\", or txt; each may end in .zst");
  vocab->add_option("--ranks", vocab_flags->ranks, "size without the 256 control tokens")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  vocab->add_flag("--split-digits", vocab_flags->split_digits, "every digit stays a token of its own");
  vocab->add_option("--megabytes", vocab_flags->megabytes, "of text from each file, spread over its documents")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  vocab
      ->add_option("--generate", vocab_flags->generated,
                   "NAME=COUNT generated documents too; may be given several times")
      ->allow_extra_args(false);
  vocab->add_option("--seed", vocab_flags->seed, "of the generated documents")->capture_default_str();
  vocab->add_option("--out", vocab_flags->out, "folder for the two files")->required();
  vocab->footer(
      "Examples:\n"
      "  k3 data vocab --ranks 3840 --split-digits --out models/my books-train.jsonl.zst\n"
      "  k3 data vocab --ranks 8192 --megabytes 50 --generate tools=20000 --generate mixed=20000 --out models/my "
      "books.jsonl.zst notes.txt");
  vocab->callback([vocab_flags] { train_vocabulary(*vocab_flags); });
}

}  // namespace k3::cli
