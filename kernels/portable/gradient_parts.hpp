#pragma once
/// What both kernels of the backward pass have in common.

#include <cmath>

#include "kernels/portable/blocks.hpp"
#include "kernels/scores.hpp"
#include "kernels/statistics.hpp"

namespace distattn::kernels::portable {

/// What the rows of a block have been given of the whole attention.
template <class Real>
struct RowValues {
  Real *lse, *lse_low, *delta;

  RowValues() = default;
  DISTATTN_HOST_DEVICE RowValues(Carver& carver, int rows)
      : lse(carver.take<Real>(rows)), lse_low(carver.take<Real>(rows)), delta(carver.take<Real>(rows)) {}

  DISTATTN_HOST_DEVICE void load(const AttendBackwardArgs& args, const HeadRows& rows, std::int64_t first, int count,
                                 int padded_count, Place place) const {
    for (int i = place.rank; i < padded_count; i += place.size) {
      const bool is_there = i < count;
      const std::int64_t at = is_there ? rows.statistic_of(first + i) : 0;
      lse[i] = is_there ? static_cast<const Real*>(args.lse)[at] : Real(0);
      lse_low[i] = is_there ? static_cast<Real>(stored_low(args.lse_low, at)) : Real(0);
      delta[i] = is_there ? static_cast<const Real*>(args.delta)[at] : Real(0);
    }
  }
  DISTATTN_HOST_DEVICE QueryValues<Real> values() const { return {lse, lse_low, delta}; }
};

/// Sets what the rows of a block see through a band. Those beyond the last see all that others do: they come to
/// nothing, because they are zeros.
template <class Real>
DISTATTN_HOST_DEVICE void see_keys(const Sight& sight, const AttendBackwardArgs& args, const HeadRows& rows,
                                   std::int64_t first, int count, int padded_count, const Band& band, const Run& keys,
                                   Place place) {
  const Real* const lse = static_cast<const Real*>(args.lse);
  for (int i = place.rank; i < padded_count; i += place.size) {
    sight.set(i,
              i < count ? seen_keys<Real>(rows, first + i, args.queries, band, keys, lse) : IndexRange{0, keys.count});
  }
}

/// Values of what is not seen are 0. `is_seen(row, column)`.
template <class Real, class IsSeen>
DISTATTN_HOST_DEVICE void clear_unseen(const Tile<Real>& tile, Place place, IsSeen is_seen) {
  for (int row = place.rank; row < tile.rows; row += place.size) {
    Real* const values = tile.values + static_cast<std::ptrdiff_t>(row) * tile.stride;
    for (int column = 0; column < tile.columns; ++column) {
      values[column] = is_seen(row, column) ? values[column] : Real(0);
    }
  }
}

}  // namespace distattn::kernels::portable
