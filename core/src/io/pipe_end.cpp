#include "core/src/io/pipe_end.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "distattn/error.hpp"
#include "distattn/io.hpp"

namespace distattn {
namespace {

constexpr auto slice = std::chrono::milliseconds(50);

std::atomic<double> patience_s{60};

[[noreturn]] void give_up(const char* doing, const std::filesystem::path& path, const char* what, const char* advice) {
  throw Error(ErrorKind::timeout,
              fmt::format("cannot {} {} ({} for {:.3g} s): {}", doing, path.string(), what, patience_s.load(), advice));
}

[[noreturn]] void fail(const char* doing, const std::filesystem::path& path, int error) {
  throw Error(ErrorKind::environment, fmt::format("cannot {} {} ({}): see what is at the other end of the pipe", doing,
                                                  path.string(), std::strerror(error)));
}

/// Counts slices, of which one is lost where the process is stopped meanwhile. False: too many.
template <class Done>
bool before_patience_ends(Done done) {
  const double slice_s = std::chrono::duration<double>(slice).count();
  for (double waited_s = 0; !done(); waited_s += slice_s) {
    if (waited_s >= patience_s) return false;
  }
  return true;
}

bool comes(int fd, short what) {
  pollfd entry{fd, what, 0};
  return ::poll(&entry, 1, static_cast<int>(slice.count())) > 0;
}

}  // namespace

void wait_for_pipes(double seconds) { patience_s = seconds; }

std::string read_pipe(int fd, std::size_t most, const std::filesystem::path& path) {
  constexpr std::size_t piece = 1 << 16;
  std::string text;
  while (text.size() < most) {
    // Before anybody has opened the other end there is neither anything to read nor an end.
    if (!before_patience_ends([fd] { return comes(fd, POLLIN); })) {
      give_up("read", path, "nothing came through the pipe", "start what writes to it");
    }
    const std::size_t before = text.size();
    text.resize(before + std::min(piece, most - before));
    const ssize_t count = ::read(fd, text.data() + before, text.size() - before);
    if (count < 0 && errno != EINTR && errno != EAGAIN) fail("read", path, errno);
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) break;
  }
  return text;
}

void write_pipe(int fd, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    if (written >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) fail("write", path, errno);
    if (!before_patience_ends([fd] { return comes(fd, POLLOUT); })) {
      give_up("write", path, "nobody read from the pipe", "see what is at its other end");
    }
  }
}

int open_to_write(const std::filesystem::path& path) {
  int fd = -1;
  const auto open = [&] {
    fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 || errno != ENXIO) return true;
    std::this_thread::sleep_for(slice);
    return false;
  };
  if (!before_patience_ends(open)) give_up("write", path, "nobody read from the pipe", "start what reads from it");
  return fd;
}

}  // namespace distattn
