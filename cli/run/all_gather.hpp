#pragma once
/// What all ranks of a run have, put together.

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {

/// Everybody's values, one rank's after the other's; `mine` are those of the ranks of this process, in order.
/// Collective.
template <class T>
std::vector<T> all_gather(World& world, std::span<const T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values;
  for (const auto& bytes : world.all_gather(std::as_bytes(mine))) {
    DISTATTN_EXPECT(bytes.size() % sizeof(T) == 0);
    const std::size_t count = values.size();
    values.resize(count + bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(&values[count], bytes.data(), bytes.size());
  }
  return values;
}

}  // namespace distattn::cli
