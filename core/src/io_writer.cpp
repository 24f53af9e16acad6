#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "distattn/error.hpp"
#include "distattn/io.hpp"
#include "io_stored.hpp"
#include "npy_header.hpp"

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

struct NpyWriter::State {
  fs::path path, partial;
  int fd = -1;
  std::size_t header_bytes = 0;
  std::int64_t elements = 0;

  ~State() {
    if (fd >= 0) ::close(fd);
    if (partial.empty()) return;
    ::unlink(partial.c_str());
    partials().remove(partial);
  }

  void write_at(std::size_t offset, const void* data, std::size_t bytes) const {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::pwrite(fd, from, bytes, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path, errno);
      from += written;
      offset += static_cast<std::size_t>(written);
      bytes -= static_cast<std::size_t>(written);
    }
  }
};

NpyWriter::NpyWriter(fs::path path, std::vector<std::int64_t> shape) : state_(std::make_unique<State>()) {
  const auto bytes = checked_bytes(shape, sizeof(float));
  if (!bytes) refuse(fmt::format("{} cannot have shape {} (its size passes 63 bits)", path.string(), to_string(shape)));
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) fail(path, EISDIR);
  const fs::path partial = path.string() + fmt::format(".partial-{}", ::getpid());
  state_->path = std::move(path);
  state_->elements = *bytes / static_cast<std::int64_t>(sizeof(float));
  state_->fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (state_->fd < 0) fail(state_->path, errno);
  state_->partial = partial;
  partials().add(partial);

  const std::string header = npy_header(shape);
  state_->header_bytes = header.size();
  state_->write_at(0, header.data(), header.size());
  off_t size = 0;
  if (__builtin_add_overflow(*bytes, header.size(), &size)) fail(state_->path, EFBIG);
  if (::ftruncate(state_->fd, size) != 0) fail(state_->path, errno);
}

NpyWriter::~NpyWriter() = default;
NpyWriter::NpyWriter(NpyWriter&&) noexcept = default;
NpyWriter& NpyWriter::operator=(NpyWriter&&) noexcept = default;

void NpyWriter::write(std::int64_t offset, const float* values, std::int64_t count) {
  DISTATTN_EXPECT(0 <= offset && 0 <= count && count <= state_->elements - offset);
  state_->write_at(state_->header_bytes + static_cast<std::size_t>(offset) * sizeof(float), values,
                   static_cast<std::size_t>(count) * sizeof(float));
}

void NpyWriter::commit() {
  if (::fsync(state_->fd) != 0 && errno != EINVAL) fail(state_->path, errno);
  if (::close(std::exchange(state_->fd, -1)) != 0) fail(state_->path, errno);
  if (::rename(state_->partial.c_str(), state_->path.c_str()) != 0) fail(state_->path, errno);
  partials().remove(state_->partial);
  state_->partial.clear();
}

void discard_partial_files() noexcept {
  const std::lock_guard lock(partials().mutex);
  for (const std::string& path : partials().paths) ::unlink(path.c_str());
}

}  // namespace distattn
