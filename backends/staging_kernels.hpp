#pragma once
/// The kernels that fill and empty a program's buffers.

#include <cstddef>
#include <span>

#include "kernels/kernels.hpp"

namespace distattn::backends {

/// Those of the device whose buffers they fill: each does a list of operations in order or side by side, and the lists
/// one after the other.
class StagingKernels {
 public:
  virtual ~StagingKernels() = default;
  virtual void rearrange(std::span<const kernels::RearrangeArgs> operations) = 0;
  virtual void delta(std::span<const kernels::DeltaArgs> operations) = 0;
  virtual void accumulate(std::span<const kernels::AccumulateArgs> operations) = 0;
  virtual void share(std::span<const kernels::ShareArgs> operations) = 0;
  virtual void settle(std::span<const kernels::SettleArgs> operations) = 0;
  virtual void merge_sinks(std::span<const kernels::SinkArgs> operations) = 0;
  virtual void differentiate_sinks(std::span<const kernels::SinkGradientArgs> operations) = 0;
  virtual void fill(const kernels::FillArgs& args) = 0;
  virtual void clear(void* into, std::size_t bytes) = 0;
};

}  // namespace distattn::backends
