#include <limits>
#include <string>

#include "core/src/format.hpp"
#include "core/src/io/open_file.hpp"
#include "core/src/io/pipe_end.hpp"
#include "distattn/files.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// What the descriptor has up to its end, or the first `most` bytes.
std::string read_up_to(int fd, std::size_t most, const std::filesystem::path& path) {
  constexpr std::size_t piece = 1 << 16;
  std::string text;
  while (text.size() < most) {
    const std::size_t before = text.size();
    text.resize(before + std::min(piece, most - before));
    const ssize_t count = ::read(fd, text.data() + before, text.size() - before);
    if (count < 0 && errno != EINTR) refuse_file(path, std::strerror(errno));
    text.resize(before + index(std::max<ssize_t>(count, 0)));
    if (count == 0) break;
  }
  return text;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const Descriptor descriptor{open_regular(path)};
  return read_up_to(descriptor.fd, std::numeric_limits<std::size_t>::max(), path);
}

std::string read_file_or_pipe(const std::filesystem::path& path, std::size_t most_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) refuse_file(path, std::strerror(errno));
  const Descriptor descriptor{fd};
  struct stat status {};
  if (::fstat(fd, &status) != 0) refuse_file(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) refuse_file(path, "neither a regular file nor a pipe");
  std::string text =
      S_ISFIFO(status.st_mode) ? read_pipe(fd, most_bytes + 1, path) : read_up_to(fd, most_bytes + 1, path);
  if (text.size() > most_bytes) {
    refuse(fmt::format("cannot read {} (it has more than {}): give a shorter one", path.string(),
                       format_bytes(static_cast<double>(most_bytes))));
  }
  return text;
}

}  // namespace distattn
