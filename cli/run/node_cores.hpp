#pragma once
/// How many cores the ranks of a node share, whether each is bound to its own or all may use the same.

#include "distattn/launch.hpp"

namespace distattn::cli {

struct NodeCores {
  int cores = 1;    ///< that at least one rank of this process's node may use
  int threads = 1;  ///< that its ranks compute with, all together

  bool are_crowded() const { return threads > cores; }
  /// What a thread gets of a core.
  double share() const { return are_crowded() ? static_cast<double>(cores) / threads : 1; }
};

/// Every rank computes with `threads` threads. Collective.
NodeCores node_cores(World& world, int threads);

}  // namespace distattn::cli
