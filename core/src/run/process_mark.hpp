#pragma once
/// Handles belong to the process that made them.

#include <fmt/core.h>
#include <unistd.h>

#include "distattn/error.hpp"

namespace distattn {

/// The threads that a handle's calls wait for are not there in a process that was forked from its own.
class ProcessMark {
 public:
  void check() const {
    if (::getpid() == process_) return;
    refuse(fmt::format("a handle of process {} in process {} (a fork has none of its threads): make one here", process_,
                       ::getpid()));
  }

 private:
  pid_t process_ = ::getpid();
};

}  // namespace distattn
