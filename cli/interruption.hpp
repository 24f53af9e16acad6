#pragma once
/// SIGINT, SIGTERM and SIGHUP end the process at once, and leave nothing half-written behind.

#include <functional>

namespace distattn::cli {

/// Call before any other thread starts. The signals are then taken by a thread of their own, which discards the
/// partial files, does what at_interruption() asked for and ends the process with 130.
void watch_for_interruption();

/// Adds something to do, on that thread, before the process ends.
void at_interruption(std::function<void()> action);

}  // namespace distattn::cli
