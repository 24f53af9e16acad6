#pragma once
/// Where the ranks of the transport suite live. Each backend's test program defines transport_world().

#include <functional>
#include <vector>

#include "distattn/engine.hpp"

namespace distattn::test {

struct TransportWorld {
  std::vector<int> sizes;  ///< numbers of ranks that can be had
  /// Calls the function for every rank that lives in this process, each with its end of a fresh transport; returns
  /// when all have, and rethrows the failure that came first.
  std::function<void(int ranks, const std::function<void(Rank, Transport&)>&)> run;
};

const TransportWorld& transport_world();

}  // namespace distattn::test
