#pragma once
/// Pipes, at whose other end there may be nobody: what reads and writes waits as wait_for_pipes() says, and throws
/// Error(timeout) beyond that. Descriptors do not block.

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>

#include "distattn/error.hpp"
#include "distattn/files.hpp"

namespace distattn {

/// What comes through the pipe up to its end, or the first `most` bytes.
std::string read_pipe(int fd, std::size_t most, const std::filesystem::path& path);

namespace pipes {

inline constexpr auto slice = std::chrono::milliseconds(50);

[[noreturn]] inline void give_up(const char* doing, const std::filesystem::path& path, const char* what,
                                 const char* advice) {
  throw Error(ErrorKind::timeout,
              fmt::format("cannot {} {} ({} for {:.3g} s): {}", doing, path.string(), what, pipe_wait_s(), advice));
}

[[noreturn]] inline void fail(const char* doing, const std::filesystem::path& path, int error) {
  const bool is_pipe = std::filesystem::is_fifo(path);
  throw Error(ErrorKind::environment,
              fmt::format("cannot {} {} ({}): {}", doing, path.string(), std::strerror(error),
                          is_pipe ? "see what is at the other end of the pipe" : "name another file"));
}

/// Counts slices, of which one is lost where the process is stopped meanwhile. False: too many.
template <class Done>
bool before_patience_ends(Done done) {
  const double slice_s = std::chrono::duration<double>(slice).count();
  for (double waited_s = 0; !done(); waited_s += slice_s) {
    if (waited_s >= pipe_wait_s()) return false;
  }
  return true;
}

inline bool comes(int fd, short what) {
  pollfd entry{fd, what, 0};
  return ::poll(&entry, 1, static_cast<int>(slice.count())) > 0;
}

}  // namespace pipes
}  // namespace distattn
