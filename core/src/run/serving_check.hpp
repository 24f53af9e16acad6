#pragma once
/// What Serving makes sure of before it reads anything.

#include <vector>

#include "distattn/serving.hpp"

namespace distattn {

/// Throws Error(usage) for problems that are not those of serving, and where the device does not read caches.
void check_served(const Problem& problem, const Dealing& dealing, const Device& device, const CacheReader* reader);

/// Checks calls; keeps memory between them.
class CallCheck {
 public:
  /// Throws Error(usage), naming the request if it is about one.
  void operator()(const ServingCall& call, const Problem& problem, const Dealing& dealing, Rank rank);

 private:
  void check_pages(const ServingCall& call, std::size_t request, std::int64_t needed);

  std::vector<std::int64_t> seen_;  ///< by page: in which request it stood last, counted over all calls
  std::int64_t count_ = 0;          ///< of requests
};

}  // namespace distattn
