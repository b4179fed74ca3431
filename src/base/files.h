// Files: memory maps, whole-file reads, and writes that appear complete or not at all (written beside, synced, renamed).
// Every failure is a UserError that names the path and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace k3 {

std::string read_file(const std::filesystem::path& path);

// Read-only map of a whole file; pages come in when touched.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Collects a file under a temporary name in the target's directory; commit() makes it visible, the destructor drops what was not committed.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  std::uint64_t written_bytes() const { return written_; }
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  int file_ = -1;
  std::uint64_t written_ = 0;
};

void write_file_atomic(const std::filesystem::path& path, std::string_view text);

// A directory that appears complete or not at all: fill path(), then commit(). An existing target is refused unless replace is set.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(std::filesystem::path target, bool replace = false);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  const std::filesystem::path& path() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  bool committed_ = false;
};

}  // namespace k3
