#include "cli/tools/files/new_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "cli/tools/files/pipe_writing.hpp"
#include "cli/tools/text_writer.hpp"
#include "distattn/error.hpp"
#include "distattn/files.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* why) {
  throw Error(ErrorKind::environment,
              fmt::format("cannot write {} ({}): choose a folder with room that you may write to", path.string(), why));
}

[[noreturn]] void fail(const fs::path& path, int error) {
  if (error == EMFILE || error == ENFILE) {
    throw Error(ErrorKind::environment,
                fmt::format("cannot write {} ({}): raise the limit of open files, as ulimit -n does", path.string(),
                            std::strerror(error)));
  }
  if (error != EFBIG) fail(path, std::strerror(error));
  throw Error(ErrorKind::environment,
              fmt::format("cannot write {} (it passes the limit of file sizes): raise ulimit -f, or "
                          "choose a folder whose disk takes files that large",
                          path.string()));
}

std::atomic<int> standard_output{STDOUT_FILENO};

/// What is behind a name, links followed; nothing where it is free. Refuses folders and what cannot be reached.
std::optional<struct stat> status_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) fail(path, errno);
    return std::nullopt;
  }
  if (S_ISDIR(status.st_mode)) fail(path, EISDIR);
  return status;
}

/// Where a chain of symbolic links ends, whether or not anything is there.
fs::path followed(fs::path path) {
  std::error_code failure;
  while (fs::is_symlink(path, failure)) path = path.parent_path() / fs::read_symlink(path);
  return path;
}

bool is_standard_output(const struct stat& status) {
  struct stat standard {};
  return ::fstat(standard_output, &standard) == 0 && standard.st_dev == status.st_dev &&
         standard.st_ino == status.st_ino;
}

/// Whether the name means standard output, whatever that is: "/dev/stdout", or a link to it.
bool names_standard_output(fs::path path) {
  const std::string own = fmt::format("/proc/{}/fd/1", ::getpid());
  std::error_code failure;
  for (int links = 0; links < 40; ++links) {
    for (const std::string_view name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
      if (path == name) return true;
    }
    if (path == own) return true;
    if (!fs::is_symlink(path, failure)) return false;
    path = path.parent_path() / fs::read_symlink(path, failure);
  }
  return false;
}

}  // namespace

void set_standard_output(int fd) { standard_output = fd; }

NewFile::NewFile(fs::path path) : path_(std::move(path)), tag_(new_tag()) {
  if (const auto there = status_of(path_)) {
    if (!S_ISREG(there->st_mode)) fail(path_, "not a regular file");
    if (is_standard_output(*there)) fail(path_, "standard output goes there");
  }
  path_ = followed(std::move(path_));
  hold_folder();
  remove_dead_partials(path_);
  partial_ = partial_path(path_, tag_);
  const auto make = [this] {
    fd_ = make_partial(partial_);
    if (fd_ < 0) fail(path_, errno);
  };
  temporary_.emplace(make, [this] { folder_->remove(partial_); });
}

NewFile::NewFile(fs::path path, const std::string& tag)
    : path_(followed(std::move(path))), partial_(partial_path(path_, tag)), tag_(tag), joined_(true) {
  hold_folder();
  fd_ = join_partial(partial_);
  if (fd_ < 0) fail(path_, errno);
  temporary_.emplace([] {}, [this] { folder_->remove(partial_); });
}

void NewFile::hold_folder() {
  folder_.emplace(path_);
  if (!folder_->is_open()) fail(path_, errno);
}

NewFile::~NewFile() {
  if (!done_) folder_->remove(partial_);
  if (fd_ >= 0) ::close(fd_);
}

void NewFile::resize(std::size_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  if (size < 0) fail(path_, EFBIG);
  // A disk that is too full says so now; file systems that cannot reserve room say so when it is used.
  if (::fallocate(fd_, 0, 0, size) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) fail(path_, errno);
  if (::ftruncate(fd_, size) != 0) fail(path_, errno);
}

void NewFile::write_at(std::size_t offset, const void* data, std::size_t bytes) const {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, errno);
    from += written;
    offset += index(written);
    bytes -= index(written);
  }
}

void NewFile::flush() const {
  if (::fsync(fd_) != 0 && errno != EINVAL) fail(path_, errno);
}

void NewFile::commit() {
  flush();
  const auto lock = hold_temporary_files();
  rename();
}

void NewFile::rename() {
  if (!joined_ && ::rename(partial_.c_str(), path_.c_str()) != 0) fail(path_, errno);
  done_ = true;
}

struct TextWriter::State {
  fs::path path;
  std::optional<NewFile> file;
  int stream = -1;  // where there is no file to replace

  ~State() {
    if (stream >= 0) ::close(stream);
  }
};

TextWriter::TextWriter(const fs::path& path) : state_(std::make_unique<State>()) {
  state_->path = path;
  if (names_standard_output(path)) {
    struct stat status {};
    if (::fstat(standard_output, &status) == 0 && S_ISREG(status.st_mode)) fail(path, "standard output goes there");
    state_->stream = ::fcntl(standard_output, F_DUPFD_CLOEXEC, 0);
    if (state_->stream < 0) fail(path, errno);
    return;
  }
  const auto there = status_of(path);
  if (!there || S_ISREG(there->st_mode)) {
    state_->file.emplace(path);
    return;
  }
  state_->stream = open_to_write(path);
  if (state_->stream < 0) fail(path, errno);
}

TextWriter::~TextWriter() = default;
TextWriter::TextWriter(TextWriter&&) noexcept = default;
TextWriter& TextWriter::operator=(TextWriter&&) noexcept = default;

void TextWriter::commit(std::string_view text) {
  if (state_->file) {
    state_->file->write_at(0, text.data(), text.size());
    state_->file->commit();
  } else {
    write_pipe(state_->stream, text, state_->path);
    if (::close(std::exchange(state_->stream, -1)) != 0) fail(state_->path, errno);
  }
}

void write_file(const fs::path& path, std::string_view text) { TextWriter(path).commit(text); }

}  // namespace distattn
