#pragma once
/// One emulated thread and what it is known to be ordered after.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <set>

#include "simt/fiber.hpp"

namespace simt {

inline constexpr unsigned warp_size = 32;
inline constexpr unsigned max_warps = 32;
/// Whose writes a clock tells apart: the warps of a block, and behind them what lands under its phase barriers.
inline constexpr unsigned max_writers = 64;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr unsigned count() const { return x * y * z; }
};

/// A vector clock: the newest epoch of each writer that its owner is ordered after.
struct Clock {
  std::array<std::uint32_t, max_writers> epoch{};

  void join(const Clock& other) {
    for (std::size_t w = 0; w < epoch.size(); ++w) epoch[w] = std::max(epoch[w], other.epoch[w]);
  }
};

/// An asynchronous copy of one thread. It may land at any moment until its group has been waited for.
struct Copy {
  std::uint32_t address = 0;  ///< in shared memory
  std::byte* into = nullptr;
  const std::byte* from = nullptr;  ///< null: zeros
  std::uint32_t bytes = 0;
  std::uint64_t group = 0;
  bool landed = false;
};

struct Thread {
  Fiber fiber;
  dim3 index;
  unsigned rank = 0, warp = 0, lane = 0;
  const char* waits_for = "start";
  bool ended = false;
  Clock seen;
  std::deque<Copy> copies;  ///< not yet waited for, oldest first
  std::uint64_t committed_groups = 0;
  std::size_t votes = 0;  ///< cast in any_thread
  std::set<const void*> acquired_maps;
};

}  // namespace simt
