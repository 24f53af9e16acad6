#pragma once
/// Compares what ranks computed with the float64 oracle.

#include <algorithm>
#include <array>
#include <vector>

#include "distattn/launch.hpp"
#include "inputs.hpp"
#include "output.hpp"
#include "rank_tensors.hpp"

namespace distattn::cli {

/// Relative L2 errors over the whole tensor; lse: the largest absolute one. The gradients' are 0 without backward.
/// dS = P ∘ (dP − delta) rounds as its terms do, however little is left of them: where more than half cancels in dq or
/// dk, the error is relative to half of what does.
struct Errors {
  double o = 0, lse = 0, dq = 0, dk = 0, dv = 0;
  double tolerance = 0;
  double largest_lse = 0;  ///< magnitude: LSEs of large scores round by as much more
  /// By pass: elements farther off than tolerance · max(1, their magnitude, their tensor's rms, that of what cancels).
  std::array<std::int64_t, 2> wrong_elements{};
  bool backward = false;

  /// What tolerance bounds: every error, that of lse as a share of its magnitude where that is above 1.
  double largest() const { return std::max(largest(Pass::forward), largest(Pass::backward)); }
  double largest(Pass pass) const;
  bool within_tolerance() const { return largest() <= tolerance; }
  bool within_tolerance(Pass pass) const { return largest(pass) <= tolerance; }
  std::int64_t wrong(Pass pass) const { return wrong_elements[static_cast<std::size_t>(pass)]; }
};

/// Goes key head by key head, so that the oracle holds one head group's tensors at a time. `steps` bounds the merges
/// that a result went through. Every process checks the rows of its ranks. Collective.
Errors check_results(World& world, const Sharding& sharding, const Inputs& inputs, const std::vector<RankTensors>& here,
                     Passes passes, int steps);

/// {"o":…,"lse":…,"dq":…,"dk":…,"dv":…,"tolerance":…}
Json json_of(const Errors& errors);

}  // namespace distattn::cli
