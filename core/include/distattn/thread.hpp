#pragma once
/// Threads, which the system may refuse.

#include <string>
#include <system_error>

#include "distattn/error.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// What to throw then: "rank 3 gets no thread to exchange messages (…) use fewer ranks or threads".
Error no_thread(const std::string& who, const std::string& purpose, const std::system_error& refused);

/// Calls of libraries that did not return in time and still run, each on a thread of its own. A process that fails
/// while there are some should end by _exit(): they may not stand the end of what they use.
int calls_left_behind() noexcept;

}  // namespace distattn
#pragma GCC visibility pop
