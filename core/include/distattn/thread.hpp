#pragma once
/// Threads: the error when the system refuses one, and calls that were left behind.

#include <string>
#include <system_error>

#include "distattn/error.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// The error to throw when the system refuses a thread: "rank 3 gets no thread to exchange messages (…) use fewer ranks
/// or threads, …", or raise the limit of memory, if that is what leaves no room for its stack.
Error no_thread(const std::string& who, const std::string& purpose, const std::system_error& refused);

/// The number of library calls that did not return in time and still run, each on its own thread. A process that fails
/// while there are any should end with _exit(), because they may crash when what they use is destroyed.
int calls_left_behind() noexcept;

}  // namespace distattn
#pragma GCC visibility pop
