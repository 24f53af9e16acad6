#include "backends/launch/launcher_watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <stop_token>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "distattn/thread.hpp"

namespace distattn::backends::launch {
namespace {

constexpr auto looking_interval = std::chrono::milliseconds(200);

Socket open_process(int pid) {
#ifdef SYS_pidfd_open
  return Socket(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
  return {};
#endif
}

}  // namespace

LauncherWatch::LauncherWatch(Launcher launcher, std::function<void(const Error&)> gone)
    : launcher_(std::move(launcher)),
      gone_(std::move(gone)),
      process_(open_process(launcher_.process.pid)),
      wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  } catch (const std::system_error& refused) {
    throw no_thread("a rank", "watch its launcher", refused);
  }
}

/// By its birth too: the number may have been given to another process before it was opened.
bool LauncherWatch::alive() const {
  const auto now = process_of(launcher_.process.pid);
  return now && now->born == launcher_.process.born;
}

void LauncherWatch::watch(const std::stop_token& stop) const {
  const std::stop_callback wake(stop, [this] {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wakeup_.fd(), &one, sizeof one));
  });
  bool ended = !alive();
  while (!ended && !stop.stop_requested()) {
    pollfd entries[] = {{process_.fd(), POLLIN, 0}, {wakeup_.fd(), POLLIN, 0}};  // poll passes over −1
    ::poll(entries, std::size(entries), static_cast<int>(looking_interval.count()));
    ended = entries[0].revents != 0 || (!process_ && !alive());
  }
  if (!ended) return;
  gone_({ErrorKind::peer, fmt::format("the launcher is gone ({}, process {}, ended before its ranks): start them anew",
                                      launcher_.process.name, launcher_.process.pid)});
}

}  // namespace distattn::backends::launch
