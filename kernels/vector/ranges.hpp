#pragma once
/// Bands as ranges of keys, one for each query: the form that vector kernels take.

#include <algorithm>
#include <cstdint>
#include <span>

#include "distattn/band.hpp"
#include "distattn/index.hpp"

namespace distattn::kernels::vector {

/// Sets what the queries `rows` see through the band: query i the keys [begin[i], end[i]) of `keys`, counted from
/// `window.begin` and cut to `window`.
inline void visible_ranges(const Band& band, const Run& queries, IndexRange rows, const Run& keys, IndexRange window,
                           std::span<std::int32_t> begin, std::span<std::int32_t> end) {
  if (rows.empty()) return;
  const auto first_key = [&](std::int64_t i) { return std::max(band.k0, queries.at(i) - band.hi); };
  const auto past_key = [&](std::int64_t i) { return std::min(band.k1, queries.at(i) - band.lo + 1); };
  IndexRange seen = indices_within(keys, first_key(rows.begin), past_key(rows.begin));
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {  // both ends never fall: one division serves all rows
    while (seen.begin < keys.count && keys.at(seen.begin) < first_key(i)) ++seen.begin;
    while (seen.end < keys.count && keys.at(seen.end) < past_key(i)) ++seen.end;
    const IndexRange cut{std::max(seen.begin, window.begin), std::min(seen.end, window.end)};
    begin[index(i)] = cut.empty() ? 0 : static_cast<std::int32_t>(cut.begin - window.begin);
    end[index(i)] = cut.empty() ? 0 : static_cast<std::int32_t>(cut.end - window.begin);
  }
}

/// `count` positions of a run from its index `first` on.
constexpr Run part_of(const Run& run, std::int64_t first, std::int64_t count) {
  return {run.at(first), count, run.stride};
}

}  // namespace distattn::kernels::vector
