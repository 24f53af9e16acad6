#pragma once
/// The largest scores of heads, which a rank's kernels on the host raise while they compute tiles.

#include <cstddef>
#include <vector>

#include "distattn/schedule.hpp"
#include "distattn/tensor.hpp"

namespace distattn::backends {

/// Empty unless the problem asks for them.
class MaxLogits {
 public:
  explicit MaxLogits(const Outline& outline);

  /// Those of a head group, [batch][heads of the group] in the accumulator's type; null if nobody asks.
  void* of(int group);
  /// Before a run: −∞ for all.
  void begin();
  /// Into [batch, 1, heads, 1].
  void store(const TensorView& tensor) const;

 private:
  std::size_t first_of(int group) const;

  const Sharding& sharding_;
  const DType dtype_;
  std::vector<double> largest_;  // memory for either type, group after group
};

}  // namespace distattn::backends
