#include "train/text_source.h"

#include <zstd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace k3::train {
namespace {

constexpr int kWindowLog = 27;

// Hands out the decompressed bytes piece by piece.
void for_each_piece(const std::filesystem::path& path, const std::function<void(std::string_view)>& take) {
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (path.extension() != ".zst") {
    if (!bytes.empty()) take(bytes);
    return;
  }
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLog);
  std::vector<char> buffer(ZSTD_DStreamOutSize());
  ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
  std::size_t left = bytes.empty() ? 1 : 0;  // bytes that the current frame still wants; 0: a frame has ended
  bool more = true;
  while (input.pos < input.size || more) {
    ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
    left = ZSTD_decompressStream(context.get(), &output, &input);
    if (ZSTD_isError(left))
      throw_user("{}: is not valid zstd: {}; compress it again", path.string(), ZSTD_getErrorName(left));
    if (output.pos > 0) take({buffer.data(), output.pos});
    more = output.pos == output.size;
  }
  if (left != 0) throw_user("{}: ends in the middle of a zstd frame; copy it again", path.string());
}

}  // namespace

void for_each_line(const std::filesystem::path& path, const std::function<void(std::string, std::int64_t)>& take) {
  std::string line;
  std::int64_t number = 0;
  const auto finish = [&] {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) take(std::move(line), number);
    line.clear();
  };
  for_each_piece(path, [&](std::string_view piece) {
    for (std::size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
      line.append(piece.substr(0, end));
      finish();
      piece.remove_prefix(end + 1);
    }
    line.append(piece);
  });
  if (!line.empty()) finish();
}

std::vector<std::string> read_documents(const std::filesystem::path& path) {
  std::vector<std::string> documents;
  for_each_line(path, [&](const std::string& line, std::int64_t number) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("text") || !object["text"].is_string())
      throw_user("{} line {}: is not a JSON object with a field \"text\"", path.string(), number);
    documents.push_back(object["text"].get<std::string>());
  });
  return documents;
}

std::string read_text(const std::filesystem::path& path) {
  std::string text;
  for_each_piece(path, [&](std::string_view piece) { text.append(piece); });
  return text;
}

}  // namespace k3::train
