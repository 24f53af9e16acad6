#pragma once
/// What a pass of a schedule takes, without its proof: what searches compare.

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/src/prediction/seen_tiles.hpp"
#include "distattn/lower.hpp"
#include "distattn/machine.hpp"
#include "distattn/simulate.hpp"
#include "distattn/table.hpp"

namespace distattn {

struct PassCost {
  double seconds = 0;             ///< predicted, to a nanosecond: less is the order of summation
  std::int64_t memory_bytes = 0;  ///< largest size of a rank's buffers
  std::vector<std::int64_t> memory_of_ranks;
};

/// Keys and values are sent as latents if there are any. Throws TooManyMessages as Lowering does. `tiles` have the
/// recipe's layout and head groups, `seen` its layout.
PassCost cost_of(const Recipe& recipe, const std::shared_ptr<const Tiles>& tiles, const SeenTiles& seen, Pass pass,
                 Mode mode, const Routes& routes, const Machine& machine, int threads,
                 const Latents* latents = nullptr);

/// One pass of one schedule.
struct Trial {
  Recipe recipe;
  Pass pass = Pass::forward;
  Routes routes;
  std::shared_ptr<const Placement> placement = {};  // that the recipe was made from,
  std::size_t candidate = 0;                        // and its number among those
  PassCost cost = {};
  std::string reason = {};  // why it cannot be planned
};

/// What layouts differ in: kind, split, block, and the number of the candidate of a given one.
using LayoutKey = std::tuple<LayoutKind, int, std::int64_t, std::size_t>;
inline LayoutKey key_of(const Trial& trial) {
  const Layout& layout = trial.recipe.layout;
  return {layout.kind, layout.split, layout.block, trial.candidate};
}
inline LayoutKey key_of_candidate(std::size_t number) { return {LayoutKind::given, 1, 1, number}; }

/// The fastest trials of one pass, at most `count`.
std::vector<Trial> fastest(const std::vector<Trial>& trials, Pass pass, std::size_t count);

}  // namespace distattn
