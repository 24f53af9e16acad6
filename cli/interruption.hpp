#pragma once
/// SIGINT, SIGTERM and SIGHUP end the process at once, and leave nothing half-written behind.

#include <functional>
#include <list>

#include "distattn/error.hpp"

namespace distattn::cli {

/// From now on a thread of its own, told by the signals, discards the partial files, does what AtInterruption asked
/// for and ends the process with 130.
void watch_for_interruption();

/// What an interrupted run says.
Error interrupted();

/// Something more to do, on that thread, as long as this object lives.
class AtInterruption {
 public:
  explicit AtInterruption(std::function<void()> action);
  ~AtInterruption();
  AtInterruption(const AtInterruption&) = delete;
  AtInterruption& operator=(const AtInterruption&) = delete;

 private:
  std::list<std::function<void()>>::iterator place_;
};

}  // namespace distattn::cli
