#pragma once
/// The largest scores of heads, which a rank's kernels raise while they compute tiles.

#include <functional>
#include <memory>
#include <vector>

#include "backends/staging_kernels.hpp"
#include "distattn/schedule.hpp"
#include "distattn/tensor.hpp"

namespace distattn::backends {

/// Empty unless the problem asks for them.
class MaxLogits {
 public:
  MaxLogits(const Outline& outline, const std::function<std::shared_ptr<std::byte>(std::size_t bytes)>& allocate);

  /// Those of a head group, [batch][heads of the group] in the accumulator's type; null if nobody asks.
  void* of(int group) const;
  /// Before a run: −∞ for all.
  void begin(StagingKernels& kernels) const;
  /// Into [batch, 1, heads, 1].
  void store(const TensorView& tensor, StagingKernels& kernels) const;

 private:
  std::int64_t first_of(int group) const;

  const Sharding& sharding_;
  const DType dtype_;
  std::shared_ptr<std::byte> largest_;  // group after group
};

}  // namespace distattn::backends
