#pragma once
/// Handing out the items of a list to the threads of a team.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

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

/// An operation's extent, and how much of it one thread takes at a time.
struct Pieces {
  std::int64_t extent, grain;
  std::int64_t count() const { return (extent + grain - 1) / grain; }
};

/// Calls piece(operation, begin, end) on consecutive pieces, pieces_of(operation) says which, of every operation.
template <class Args, class PiecesOf, class Piece>
void for_each_piece(Team& team, std::span<const Args> operations, const StopFlag& stop, PiecesOf pieces_of,
                    Piece piece) {
  std::int64_t count = 0;
  for (const Args& args : operations) count += pieces_of(args).count();
  if (count == 0) return;
  std::atomic<std::int64_t> next{0};
  team.run([&](int) {
    auto args = operations.begin();
    std::int64_t first = 0;  // of its pieces, among all
    for (std::int64_t i; (i = next.fetch_add(1)) < count && !stop.load(std::memory_order_relaxed);) {
      for (std::int64_t own; i - first >= (own = pieces_of(*args).count()); first += own) ++args;
      const auto [extent, grain] = pieces_of(*args);
      piece(*args, (i - first) * grain, std::min(extent, (i - first + 1) * grain));
    }
  });
}

}  // namespace distattn::kernels
