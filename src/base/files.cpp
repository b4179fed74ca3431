#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace k3 {
namespace fs = std::filesystem;
namespace {

int open_for_reading(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_user("{}: cannot be read: {}; check the path", path.string(), std::strerror(errno));
  return file;
}

fs::path beside(const fs::path& target) {
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  return folder / fmt::format(".{}.{}.part", target.filename().string(), ::getpid());
}

void make_folder_of(const fs::path& target) {
  std::error_code error;
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), error);
  if (error) throw_user("{}: folder cannot be made: {}", target.parent_path().string(), error.message());
}

}  // namespace

std::string read_file(const fs::path& path) {
  const MappedFile file(path);
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const int file = open_for_reading(path);
  struct stat status{};
  const bool known = ::fstat(file, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(file);
    throw_user("{}: is not a regular file", path.string());
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED) {
      ::close(file);
      throw_user("{}: cannot be mapped: {}", path.string(), std::strerror(errno));
    }
    data_ = static_cast<const std::byte*>(map);
  }
  ::close(file);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)), temporary_(beside(target_)) {
  make_folder_of(target_);
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) throw_user("{}: cannot be written: {}", target_.string(), std::strerror(errno));
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, -1)),
      written_(other.written_) {}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_user("{}: writing failed: {}; nothing was changed", target_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    written_ += static_cast<std::uint64_t>(count);
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::commit() {
  K3_CHECK(file_ >= 0, "{} was committed twice", target_.string());
  const bool synced = ::fsync(file_) == 0;
  const int sync_error = errno;
  const bool closed = ::close(file_) == 0;
  file_ = -1;
  if (!synced || !closed || ::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int error = synced ? errno : sync_error;
    ::unlink(temporary_.c_str());
    throw_user("{}: writing failed: {}; nothing was changed", target_.string(), std::strerror(error));
  }
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AtomicDirectory::AtomicDirectory(fs::path target, bool replace) : target_(std::move(target)) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // "out/" means "out"
  if (fs::exists(target_) && !replace && !(fs::is_directory(target_) && fs::is_empty(target_)))
    throw_user("{}: already exists; choose another folder or remove it first", target_.string());
  temporary_ = beside(target_);
  std::error_code error;
  fs::remove_all(temporary_, error);
  fs::create_directories(temporary_, error);
  if (error) throw_user("{}: cannot be made: {}", target_.string(), error.message());
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicDirectory::commit() {
  std::error_code error;
  fs::path old;
  if (fs::exists(target_)) {
    old = temporary_.string() + ".old";
    fs::rename(target_, old, error);
  }
  if (!error) fs::rename(temporary_, target_, error);
  if (error) throw_user("{}: cannot be put in place: {}", target_.string(), error.message());
  committed_ = true;
  if (!old.empty()) fs::remove_all(old, error);
}

}  // namespace k3
