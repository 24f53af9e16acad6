#pragma once
/// Completions in order of time: the clock of a simulation.

#include <cstddef>
#include <queue>
#include <tuple>
#include <vector>

namespace distattn {

/// What ends at `time`; of several at one time, the lower kind and number come first, so that runs repeat exactly.
struct Completion {
  enum class Kind : int { step, cores };
  double time = 0;
  Kind kind = Kind::step;
  std::size_t number = 0;   ///< the step, or the node whose cores they are
  std::size_t version = 0;  ///< of the cores' state

  friend bool operator>(const Completion& a, const Completion& b) {
    return std::tie(a.time, a.kind, a.number, a.version) > std::tie(b.time, b.kind, b.number, b.version);
  }
};

using EventQueue = std::priority_queue<Completion, std::vector<Completion>, std::greater<>>;

}  // namespace distattn
