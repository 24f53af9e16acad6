#pragma once
/// What the results of a run should be in float64, which its processes compute in turns.

#include <cstdint>

#include "cli/run/inputs.hpp"
#include "cli/tools/oracle.hpp"
#include "distattn/launch.hpp"
#include "distattn/request.hpp"

namespace distattn::cli {

/// The problem of one sequence, of one key head and of the query heads that share it.
Problem head_group(const Problem& problem, std::int64_t kv_head);

/// Processes compute as many groups as there are processes at a time, one each, and send them to each other. They all
/// compute, also if fewer groups are left, so that none waits long for others. If the transport does not reach host
/// memory, each process computes all groups. Holds the results of two groups.
class SharedOracle {
 public:
  /// Keeps references to its arguments.
  SharedOracle(World& world, const Problem& problem, const Rounding& rounding, const Inputs& inputs, Passes passes);

  /// Of the next group: key head by key head, sequence by sequence. Collective.
  ExpectedResult next();

 private:
  ExpectedResult compute(std::int64_t group) const;
  ExpectedResult sent_by(Rank owner);

  World& world_;
  const Problem& problem_;
  const Rounding& rounding_;
  const Inputs& inputs_;
  Passes passes_;
  std::int64_t processes_ = 1;  ///< that share the work
  std::int64_t next_ = 0;
  ExpectedResult mine_;  ///< of the group that this process has computed
};

}  // namespace distattn::cli
