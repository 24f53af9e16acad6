#pragma once
/// A program's compute steps as lists of kernel arguments, resolved once: running a step looks nothing up.

#include <deque>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "backends/max_logits.hpp"
#include "backends/placement.hpp"
#include "backends/staging_kernels.hpp"
#include "distattn/engine.hpp"
#include "kernels/arguments.hpp"

namespace distattn::backends {

/// What all tiles of a problem have in common, for a group of its heads.
kernels::TileShape shape_of(const Problem& problem, const HeadGroup& group);
/// The same for all heads.
kernels::TileShape shape_of(const Problem& problem);

/// Independent operations of one kind: what a kernel takes at once.
using Batch = std::variant<std::vector<kernels::AttendArgs>, std::vector<kernels::AttendBackwardArgs>,
                           std::vector<kernels::MergeArgs>, std::vector<kernels::AccumulateArgs>,
                           std::vector<kernels::ConvertArgs>, std::vector<kernels::FillArgs>>;

/// The batches of every compute step. Operations of a step that touch the same memory follow each other in different
/// batches, in the step's order; others share one.
class Batches {
 public:
  /// Finds the bands under every tile. What it is given must outlive it, but for the placement.
  Batches(const BufferTable& buffers, const Placement& placement, const MaxLogits& max_logits);
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  /// Attention's operands are where the placement says from now on. Allocates nothing.
  void bind(const Placement& placement);

  std::span<const Batch> of(std::size_t step) const { return steps_[step]; }
  /// Weights are dropped as these bindings say from now on.
  void set_dropout(const Bindings& bindings);

 private:
  class Builder;
  /// An operation and its arguments.
  template <class O, class Args>
  struct Bound {
    const O* op;
    kernels::KeySide* sides;
    Args* args;
  };

  const MaxLogits& max_logits_;
  kernels::Dropout dropout_;
  std::size_t values_;  // part of a buffer of keys in which values begin
  std::map<std::pair<SegmentId, SegmentId>, std::vector<Band>> bands_;
  std::deque<std::vector<kernels::KeySide>> keys_;
  std::vector<std::vector<Batch>> steps_;
  std::vector<Bound<Attend, kernels::AttendArgs>> attends_;
  std::vector<Bound<AttendBackward, kernels::AttendBackwardArgs>> backwards_;
};

}  // namespace distattn::backends
