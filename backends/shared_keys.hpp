#pragma once
/// What a rank's keys have in common, which backward passes leave out of sums until the rank has added all of them.

#include <vector>

#include "backends/placement.hpp"
#include "distattn/engine.hpp"
#include "kernels/arguments.hpp"

namespace distattn::backends {

/// The kernel arguments for a program's own queries, made once. None for programs that keep no sums (schedule.hpp).
class SharedKeys {
 public:
  explicit SharedKeys(const BufferTable& buffers);

  /// Before the first step: a query segment is told what the first of the rank's own key segments has in common.
  /// Operands are where the placement says; without one, in their slots.
  std::span<const kernels::ShareArgs> to_find(const Placement* placement);
  /// After the last: what dq leaves out, unless it is rounding.
  std::span<const kernels::SettleArgs> to_settle(const Placement* placement);

 private:
  std::vector<kernels::ShareArgs> found_;
  std::vector<BufferId> key_values_;  // of found_; none: −1
  std::vector<kernels::SettleArgs> settled_;
  std::vector<BufferId> dqueries_;  // of settled_
};

}  // namespace distattn::backends
