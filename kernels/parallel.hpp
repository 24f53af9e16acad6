#pragma once
/// Handing out the items of a list to the threads of a team.

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/arguments.hpp"
#include "kernels/team.hpp"

namespace distattn::kernels {

/// Calls item(i) for 0 ≤ i < count, each once, on whatever thread is free, until `stop` is set.
template <class Item>
void for_each_item(Team& team, std::int64_t count, const StopFlag& stop, Item item) {
  std::atomic<std::int64_t> next{0};
  team.run([&](int) {
    for (std::int64_t i; (i = next.fetch_add(1)) < count;) {
      if (stop.load(std::memory_order_relaxed)) return;
      item(i);
    }
  });
}

/// Calls piece(begin, end) on consecutive pieces of [0, count) of about `grain`.
template <class Piece>
void for_each_piece(Team& team, std::int64_t count, std::int64_t grain, const StopFlag& stop, Piece piece) {
  for_each_item(team, (count + grain - 1) / grain, stop,
                [&](std::int64_t i) { piece(i * grain, std::min(count, (i + 1) * grain)); });
}

}  // namespace distattn::kernels
