#pragma once
/// Addresses of hosts, from servers that may not answer.

#include <netdb.h>

#include <memory>
#include <string>

#include "backends/launch/socket.hpp"

namespace distattn::backends::launch {

using Addresses = std::shared_ptr<const addrinfo>;

/// Where `host` may be reached; null, and why in `unknown`, where no server said so before the deadline. A question
/// that is under way goes on, and its answer is had by the next call.
Addresses look_up(const std::string& host, Clock::time_point deadline, std::string& unknown);

}  // namespace distattn::backends::launch
