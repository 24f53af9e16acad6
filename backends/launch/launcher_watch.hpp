#pragma once
/// The end of the launcher, which its ranks do not outlive.

#include <functional>
#include <thread>

#include "backends/launch/processes.hpp"
#include "backends/launch/socket.hpp"
#include "distattn/error.hpp"

namespace distattn::backends::launch {

/// While it lives, a thread waits for the end of `launcher`.
class LauncherWatch {
 public:
  /// `gone` is called once, on that thread. Throws Error(environment) when the system gives none.
  LauncherWatch(Launcher launcher, std::function<void(const Error&)> gone);
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  void watch(const std::stop_token& stop) const;
  bool alive() const;

  const Launcher launcher_;
  const std::function<void(const Error&)> gone_;
  Socket process_;  ///< readable when the process has ended; −1 where the system has no such thing
  Socket wakeup_;   ///< readable when nobody needs to know any more
  std::jthread thread_;
};

}  // namespace distattn::backends::launch
