#include "core/src/io/pipe_end.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "distattn/index.hpp"

namespace distattn {
namespace {

std::atomic<double> patience_s{60};

}  // namespace

void wait_for_pipes(double seconds) { patience_s = seconds; }

double pipe_wait_s() { return patience_s; }

std::string read_pipe(int fd, std::size_t most, const std::filesystem::path& path) {
  constexpr std::size_t piece = 1 << 16;
  std::string text;
  while (text.size() < most) {
    // Before anybody has opened the other end there is neither anything to read nor an end.
    if (!pipes::before_patience_ends([fd] { return pipes::comes(fd, POLLIN); })) {
      pipes::give_up("read", path, "nothing came through the pipe", "start what writes to it");
    }
    const std::size_t before = text.size();
    text.resize(before + std::min(piece, most - before));
    const ssize_t count = ::read(fd, text.data() + before, text.size() - before);
    if (count < 0 && errno != EINTR && errno != EAGAIN) pipes::fail("read", path, errno);
    text.resize(before + index(std::max<ssize_t>(count, 0)));
    if (count == 0) break;
  }
  return text;
}

}  // namespace distattn
