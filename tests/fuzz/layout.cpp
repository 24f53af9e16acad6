#include "distattn/placement.hpp"

#include "fuzz/targets.hpp"

namespace distattn::fuzz {

/// What is accepted is checked, and written as it was read.
void read_layout(Bytes bytes) {
  const auto placement = accepted([&] { return placement_from_json(text_of(bytes), "a layout"); });
  if (!placement) return;
  const auto again = accepted([&] { return placement_from_json(to_json(*placement), "what was written"); });
  require(again && to_json(*again) == to_json(*placement), "a layout that is written reads the same");
}

}  // namespace distattn::fuzz
