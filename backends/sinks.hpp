#pragma once
/// Sink logits, which concern the owner of a row alone: a forward pass merges (0, logit) into a row's whole result
/// once, a backward pass sums their gradients over the rows that the rank owns. Tiles know nothing of them.

#include <functional>
#include <memory>
#include <vector>

#include "backends/placement.hpp"
#include "backends/staging_kernels.hpp"
#include "distattn/engine.hpp"

namespace distattn::backends {

/// Prepared once for a program; its calls allocate nothing.
class Sinks {
 public:
  Sinks(const BufferTable& buffers, const std::function<std::shared_ptr<std::byte>(std::size_t bytes)>& allocate);

  /// Packs the logits; in a backward pass, in which delta must be known, also sums up the rank's share of their
  /// gradient.
  void load(const Bindings& bindings, StagingKernels& kernels);
  /// Forward: merges the logits into all rows, which lie where `placement`, if there is one, says. Backward: unpacks
  /// the gradient.
  void store(const Bindings& bindings, const Placement* placement, StagingKernels& kernels);

 private:
  void add_outputs(const BufferTable& buffers, BufferId buffer);
  void add_queries(const BufferTable& buffers, BufferId buffer);
  void* number_of(std::byte* first, std::int64_t head) const;

  const Pass pass_;
  const DType dtype_;
  const std::int64_t heads_;
  std::shared_ptr<std::byte> memory_;  // logits and gradients, [heads] each
  std::vector<BufferId> outputs_;
  std::vector<kernels::SinkArgs> merges_;                 // by output
  std::vector<kernels::SinkRows> rows_;                   // by query
  std::vector<kernels::SinkGradientArgs> differentials_;  // one, of backward passes
};

}  // namespace distattn::backends
