#include "core/src/io/new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/io.hpp"

namespace distattn {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, int error) {
  throw Error(ErrorKind::environment,
              fmt::format("cannot write {} ({}) choose a folder with room that you may write to", path.string(),
                          std::strerror(error)));
}

/// Temporary files of this process, for discard_partial_files().
struct Partials {
  std::mutex mutex;
  std::vector<std::string> paths;

  void add(const fs::path& path) {
    const std::lock_guard lock(mutex);
    paths.push_back(path.string());
  }
  void remove(const fs::path& path) {
    const std::lock_guard lock(mutex);
    std::erase(paths, path.string());
  }
};

Partials& partials() {
  static Partials instance;
  return instance;
}

}  // namespace

NewFile::NewFile(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) fail(path_, EISDIR);
  open(::getpid(), O_CREAT | O_TRUNC);
}

NewFile::NewFile(fs::path path, int maker) : path_(std::move(path)), joined_(true) { open(maker, 0); }

void NewFile::open(int maker, int flags) {
  const fs::path partial = path_.string() + fmt::format(".partial-{}", maker);
  fd_ = ::open(partial.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
  if (fd_ < 0) fail(path_, errno);
  partial_ = partial;
  partials().add(partial_);
}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (partial_.empty()) return;
  ::unlink(partial_.c_str());
  partials().remove(partial_);
}

void NewFile::resize(std::size_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  if (size < 0) fail(path_, EFBIG);
  // A disk that is too full says so now; file systems that cannot reserve room say so when it is used.
  if (::fallocate(fd_, 0, 0, size) != 0 && errno == ENOSPC) fail(path_, errno);
  if (::ftruncate(fd_, size) != 0) fail(path_, errno);
}

void NewFile::write_at(std::size_t offset, const void* data, std::size_t bytes) const {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, errno);
    from += written;
    offset += static_cast<std::size_t>(written);
    bytes -= static_cast<std::size_t>(written);
  }
}

void NewFile::commit() {
  if (::fsync(fd_) != 0 && errno != EINVAL) fail(path_, errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail(path_, errno);
  if (!joined_ && ::rename(partial_.c_str(), path_.c_str()) != 0) fail(path_, errno);
  partials().remove(partial_);
  partial_.clear();
}

void write_file(const fs::path& path, std::string_view text) {
  NewFile file(path);
  file.write_at(0, text.data(), text.size());
  file.commit();
}

void discard_partial_files() noexcept {
  const std::lock_guard lock(partials().mutex);
  for (const std::string& path : partials().paths) ::unlink(path.c_str());
}

}  // namespace distattn
