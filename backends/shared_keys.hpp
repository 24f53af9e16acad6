#pragma once
/// What a rank's keys have in common, which backward passes leave out of sums until the rank has added all of them.

#include <map>
#include <vector>

#include "backends/placement.hpp"
#include "distattn/engine.hpp"
#include "kernels/arguments.hpp"

namespace distattn::backends {

/// The kernel arguments for a program's own queries, made once. None for programs that keep no sums (schedule.hpp).
class SharedKeys {
 public:
  /// Devices whose kernels settle nothing need no products.
  SharedKeys(const BufferTable& buffers, bool settles);

  /// Before the first step: a query segment is told what the first of the rank's own key segments has in common.
  /// Operands are where the placement says; without one, in their slots.
  std::span<const kernels::ShareArgs> to_find(const Placement* placement);
  /// Where the products of delta of an own query segment go (kernels/arguments.hpp); null where none are needed.
  float* products_of(BufferId query);
  /// After the last: what dq leaves out, unless it is rounding.
  std::span<const kernels::SettleArgs> to_settle(const Placement* placement);

 private:
  std::map<BufferId, std::vector<float>> products_;
  std::vector<kernels::ShareArgs> found_;
  std::vector<BufferId> key_values_;  // of found_; none: −1
  std::vector<kernels::SettleArgs> settled_;
  std::vector<BufferId> dqueries_;  // of settled_
};

}  // namespace distattn::backends
