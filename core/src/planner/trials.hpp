#pragma once
/// What a pass of a schedule takes, without its proof: what searches compare.

#include <cstdint>
#include <memory>

#include "core/src/prediction/seen_tiles.hpp"
#include "distattn/lower.hpp"
#include "distattn/machine.hpp"
#include "distattn/simulate.hpp"
#include "distattn/table.hpp"

namespace distattn {

struct PassCost {
  double seconds = 0;             ///< predicted, to a nanosecond: less is the order of summation
  std::int64_t memory_bytes = 0;  ///< largest size of a rank's buffers
};

/// Keys and values are sent as latents if there are any. Throws TooManyMessages as Lowering does. `tiles` have the
/// recipe's layout and head groups, `seen` its layout.
PassCost cost_of(const Recipe& recipe, const std::shared_ptr<const Tiles>& tiles, const SeenTiles& seen, Pass pass,
                 Mode mode, const Routes& routes, const Machine& machine, int threads,
                 const Latents* latents = nullptr);

}  // namespace distattn
