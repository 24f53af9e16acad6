#pragma once
/// Bands as ranges of keys, one for each query: the form that vector kernels take.

#include <algorithm>
#include <cstdint>
#include <span>

#include "distattn/band.hpp"

namespace distattn::kernels::kokkos {

/// Query i of `queries` sees the keys [begin[i], end[i]) of `keys` through the band, counted from `window.begin` and
/// cut to `window`. Entries past the queries become 0.
inline void visible_ranges(const Band& band, const Run& queries, const Run& keys, IndexRange window,
                           std::span<std::int32_t> begin, std::span<std::int32_t> end) {
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const auto query = static_cast<std::int64_t>(i);
    IndexRange seen;
    if (query < queries.count) seen = band_keys(band, queries.at(query), keys);
    seen = {std::max(seen.begin, window.begin), std::min(seen.end, window.end)};
    const bool empty = seen.empty();
    begin[i] = empty ? 0 : static_cast<std::int32_t>(seen.begin - window.begin);
    end[i] = empty ? 0 : static_cast<std::int32_t>(seen.end - window.begin);
  }
}

/// `count` positions of a run from its index `first` on.
constexpr Run part_of(const Run& run, std::int64_t first, std::int64_t count) {
  return {run.at(first), count, run.stride};
}

}  // namespace distattn::kernels::kokkos
