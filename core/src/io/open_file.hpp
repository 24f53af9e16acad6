#pragma once
/// Descriptors of files to read.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "distattn/error.hpp"

namespace distattn {

[[noreturn]] inline void refuse_file(const std::filesystem::path& path, const char* why) {
  refuse(fmt::format("cannot read {} ({}): give the path of a readable file", path.string(), why));
}

/// Closes a descriptor at the end of its scope: a mapping does not need it.
struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

/// Throws Error(usage) for what cannot be opened or is not a regular file.
inline int open_regular(const std::filesystem::path& path) {
  // O_NONBLOCK: a fifo must be refused below, not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) refuse_file(path, std::strerror(errno));
  struct stat status {};
  const bool told = ::fstat(fd, &status) == 0;
  if (told && S_ISREG(status.st_mode)) return fd;
  const char* const why = told ? "not a regular file" : std::strerror(errno);
  ::close(fd);
  refuse_file(path, why);
}

}  // namespace distattn
