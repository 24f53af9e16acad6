#include "cli/tools/files/pipe_writing.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "core/src/io/pipe_end.hpp"
#include "distattn/index.hpp"

namespace distattn {

void write_pipe(int fd, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) text.remove_prefix(index(written));
    if (written >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) pipes::fail("write", path, errno);
    if (!pipes::before_patience_ends([fd] { return pipes::comes(fd, POLLOUT); })) {
      pipes::give_up("write", path, "nobody read from the pipe", "see what is at its other end");
    }
  }
}

int open_to_write(const std::filesystem::path& path) {
  int fd = -1;
  const auto open = [&] {
    fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 || errno != ENXIO) return true;
    std::this_thread::sleep_for(pipes::slice);
    return false;
  };
  if (!pipes::before_patience_ends(open))
    pipes::give_up("write", path, "nobody read from the pipe", "start what reads from it");
  return fd;
}

}  // namespace distattn
