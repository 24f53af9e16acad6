#include "core/src/io/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "distattn/error.hpp"
#include "distattn/io.hpp"
#include "distattn/words.hpp"

namespace distattn {
namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& path, const char* why) {
  refuse(fmt::format("cannot read {} ({}) give the path of a readable file", path.string(), why));
}

/// Closes a descriptor at the end of its scope: a mapping does not need it.
struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

/// What the descriptor has up to its end, or the first `most` bytes.
std::string read_up_to(int fd, std::size_t most, const std::filesystem::path& path) {
  constexpr std::size_t piece = 1 << 16;
  std::string text;
  while (text.size() < most) {
    const std::size_t before = text.size();
    text.resize(before + std::min(piece, most - before));
    const ssize_t count = ::read(fd, text.data() + before, text.size() - before);
    if (count < 0 && errno != EINTR) refuse_file(path, std::strerror(errno));
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) break;
  }
  return text;
}

}  // namespace

MappedFile map_file(const std::filesystem::path& path) {
  // O_NONBLOCK: a fifo must be refused below, not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) refuse_file(path, std::strerror(errno));
  const Descriptor descriptor{fd};
  struct stat status {};
  if (::fstat(fd, &status) != 0) refuse_file(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse_file(path, "not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {};
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) refuse_file(path, std::strerror(errno));
  return {{static_cast<const std::byte*>(address), size},
          std::shared_ptr<const void>(address, [size](const void* p) { ::munmap(const_cast<void*>(p), size); })};
}

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file = map_file(path);
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

std::string read_file_or_pipe(const std::filesystem::path& path, std::size_t most_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) refuse_file(path, std::strerror(errno));
  const Descriptor descriptor{fd};
  struct stat status {};
  if (::fstat(fd, &status) != 0) refuse_file(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) refuse_file(path, "neither a regular file nor a pipe");
  std::string text = read_up_to(fd, most_bytes + 1, path);
  if (text.size() > most_bytes) {
    refuse(fmt::format("cannot read {} (it has more than {}) give a shorter one", path.string(),
                       bytes_in_words(static_cast<double>(most_bytes))));
  }
  return text;
}

}  // namespace distattn
