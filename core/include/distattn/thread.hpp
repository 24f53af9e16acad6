#pragma once
/// Threads, which the system may refuse.

#include <string>
#include <system_error>

#include "distattn/error.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// What to throw then: "rank 3 gets no thread to exchange messages (…) use fewer ranks or threads".
Error no_thread(const std::string& who, const std::string& purpose, const std::system_error& refused);

}  // namespace distattn
#pragma GCC visibility pop
