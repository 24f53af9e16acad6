#pragma once
/// What both kernels of the backward pass have in common.

#include <cmath>

#include "kernels/portable/pair_terms.hpp"
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

/// Tiles of scores, of gradients and of what is between them, of one shape.
template <class Real>
struct ScoreTiles {
  Real* scores;
  Real* products;
  Real* slopes;  ///< of the map of scores at each; null where TileSizes keeps none

  ScoreTiles() = default;
  DISTATTN_HOST_DEVICE ScoreTiles(Carver& carver, const TileSizes& sizes) : slopes(nullptr) {
    const std::ptrdiff_t size = static_cast<std::ptrdiff_t>(sizes.queries) * sizes.keys;
    scores = carver.take<Real>(size);
    products = carver.take<Real>(size);
    if (sizes.keeps_slopes) slopes = carver.take<Real>(size);
  }
};

/// Of the factor times QKᵀ and of dO Vᵀ makes weights that nothing was dropped of yet, and gradients of the products
/// that the map of scores was given. A tile's threads wait for each other before and after.
template <class Real, class Team>
DISTATTN_HOST_DEVICE void differentiate_tile(const Team& team, const Pairs& pairs, const ScoreTiles<Real>& tiles,
                                             const Tile<Real>& scores, const QueryValues<Real>& queries) {
  const Place place = team.place();
  const bool queries_are_rows = pairs.key_step == 1;
  const std::int64_t size = static_cast<std::int64_t>(scores.rows) * scores.stride;
  Scores map = pairs.shape.scores;
  if (tiles.slopes != nullptr) {  // derivatives follow from products, to which biases are added next
    with_scores<Real>(map, [&](const auto& of_products) {
      for (std::int64_t i = place.rank; i < size; i += place.size) {
        tiles.slopes[i] = of_products.derivative(scores.values[i]);
      }
    });
    team.wait();
    team.tiles().map(place, map, scores);
    map = linear_part(map);
    team.wait();
  }
  if (pairs.shape.alibi_slopes != nullptr) add_biases(place, pairs, scores.values);
  if (pairs.shape.dropout != nullptr) drop(team.tiles(), place, pairs, tiles.products);
  team.wait();
  team.tiles().differentiate(place, map, scores, tiles.products, queries, queries_are_rows);
  team.wait();
  if (tiles.slopes == nullptr) return;
  for (std::int64_t i = place.rank; i < size; i += place.size) tiles.products[i] *= tiles.slopes[i];
  team.wait();
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
