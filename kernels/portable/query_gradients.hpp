#pragma once
/// dQ of one block of queries, which visits the keys that they see.

#include "kernels/portable/gradient_parts.hpp"

namespace distattn::kernels::portable {

/// Arrays of a team. Queries are along the columns of its tiles.
template <class Real>
struct QueryGradientScratch {
  Real *q, *d_o, *k, *v;   ///< q[x][i], d_o[x][i], k[j][x], v[j][x]
  ScoreTiles<Real> tiles;  ///< [j][i]
  Real* dq;                ///< [x][i]
  RowValues<Real> row_values;
  Sight sight;
  std::size_t bytes;

  DISTATTN_HOST_DEVICE QueryGradientScratch(std::byte* memory, const TileSizes& sizes) {
    Carver carver(memory);
    const std::ptrdiff_t head = sizes.head_columns, value = sizes.value_columns;
    q = carver.take<Real>(head * sizes.queries);
    d_o = carver.take<Real>(value * sizes.queries);
    k = carver.take<Real>(head * sizes.keys);
    v = carver.take<Real>(value * sizes.keys);
    tiles = ScoreTiles<Real>(carver, sizes);
    dq = carver.take<Real>(head * sizes.queries);
    row_values = RowValues<Real>(carver, sizes.queries);
    sight = Sight(carver, sizes.queries);
    bytes = carver.used();
  }
};

template <class Real, class Team>
class QueryGradientBlock {
 public:
  DISTATTN_HOST_DEVICE QueryGradientBlock(const Team& team, const AttendBackwardArgs& args, const Item& item,
                                          const TileSizes& sizes, std::byte* memory)
      : team_(team),
        args_(args),
        sizes_(sizes),
        rows_(args.shape, args.queries, item.batch, item.kv),
        first_(item.first),
        arrays_(memory, sizes) {
    const std::int64_t left = rows_.count() - first_;
    count_ = left < sizes.queries ? static_cast<int>(left) : sizes.queries;
  }

  DISTATTN_HOST_DEVICE void run() {
    const Place place = team_.place();
    const DType dtype = args_.shape.dtype;
    team_.tiles().load_transposed(place, rows_.of(args_.q, dtype, first_), count_, sizes_.head_dim,
                                  {arrays_.q, sizes_.queries, sizes_.head_columns, sizes_.queries});
    team_.tiles().load_transposed(place, rows_.of(args_.d_o, dtype, first_), count_, sizes_.value_dim,
                                  {arrays_.d_o, sizes_.queries, sizes_.value_columns, sizes_.queries});
    arrays_.row_values.load(args_, rows_, first_, count_, sizes_.queries, place);
    const int size = sizes_.head_columns * sizes_.queries;
    for (int i = place.rank; i < size; i += place.size) arrays_.dq[i] = 0;
    for (const KeySide& side : args_.keys) {
      for (const Band& band : side.bands) add_band(side, band);
    }
    team_.wait();
    for (int i = place.rank; i < count_; i += place.size) write_row(i);
  }

 private:
  DISTATTN_HOST_DEVICE void add_band(const KeySide& side, const Band& band) {
    if (classify(band, positions_of(rows_, args_.queries, first_, count_), side.keys) == Coverage::skip) return;
    team_.wait();
    see_keys<Real>(arrays_.sight, args_, rows_, first_, count_, sizes_.queries, band, side.keys, team_.place());
    team_.wait();
    const IndexRange seen = arrays_.sight.hull(count_);
    for (std::int64_t key = seen.begin / sizes_.keys * sizes_.keys; key < seen.end; key += sizes_.keys) {
      if (team_.is_stopped()) return;
      const std::int64_t left = side.keys.count - key;
      add_tile(side, key, left < sizes_.keys ? static_cast<int>(left) : sizes_.keys);
    }
  }

  DISTATTN_HOST_DEVICE void add_tile(const KeySide& side, std::int64_t key, int keys) {
    const auto& tiles = team_.tiles();
    const Place place = team_.place();
    const DType dtype = args_.shape.dtype;
    const bool is_finite =
        team_.all(tiles.load(place, key_rows(side, side.k, dtype, rows_.batch, rows_.kv, key), keys, sizes_.head_dim,
                             {arrays_.k, sizes_.head_columns, sizes_.keys, sizes_.head_columns}));
    tiles.load(place, key_rows(side, side.v, dtype, rows_.batch, rows_.kv, key), keys, sizes_.value_dim,
               {arrays_.v, sizes_.value_columns, sizes_.keys, sizes_.value_columns});
    team_.wait();
    const Real factor = factor_of<Real>(args_.shape.scores);
    const int queries = sizes_.queries;
    const Tile<Real> scores{arrays_.tiles.scores, queries, sizes_.keys, queries};
    tiles.multiply(place, {scores.values, queries, arrays_.k, sizes_.head_columns, 1, arrays_.q, queries, scores.rows,
                           queries, sizes_.head_dim, factor});
    tiles.multiply(place, {arrays_.tiles.products, queries, arrays_.v, sizes_.value_columns, 1, arrays_.d_o, queries,
                           scores.rows, queries, sizes_.value_dim});
    team_.wait();
    const Pairs pairs{args_.shape, rows_,  args_.queries, first_, count_, {side.keys.at(key), keys, side.keys.stride},
                      1,           queries};
    differentiate_tile(team_, pairs, arrays_.tiles, scores, arrays_.row_values.values());
    const Tile<Real> d_products{arrays_.tiles.products, queries, sizes_.keys, queries};
    const bool sees_all = keys == sizes_.keys && arrays_.sight.all(count_, {key, key + keys});
    if (!sees_all) {
      clear_unseen(d_products, place, [&](int j, int i) { return j < keys && arrays_.sight.holds(i, key + j); });
    }
    team_.wait();
    if (is_finite || sees_all) {
      tiles.multiply(place, {arrays_.dq, queries, arrays_.k, 1, sizes_.head_columns, d_products.values, queries,
                             padded(sizes_.head_dim, row_step), queries, keys, factor, true});
    } else {
      add_seen(key, keys, factor);
    }
    team_.wait();
  }

  /// The product with keys some of which are not finite, of which 0 would make NaN.
  DISTATTN_HOST_DEVICE void add_seen(std::int64_t key, int keys, Real factor) const {
    for (int i = team_.place().rank; i < count_; i += team_.place().size) {
      for (int j = 0; j < keys; ++j) {
        if (!arrays_.sight.holds(i, key + j)) continue;
        const Real gradient = factor * arrays_.tiles.products[static_cast<std::ptrdiff_t>(j) * sizes_.queries + i];
        const Real* const k = arrays_.k + static_cast<std::ptrdiff_t>(j) * sizes_.head_columns;
        for (int x = 0; x < sizes_.head_dim; ++x) arrays_.dq[x * sizes_.queries + i] += gradient * k[x];
      }
    }
  }

  DISTATTN_HOST_DEVICE void write_row(int i) const {
    Real* const dq = rows_.row_of<Real>(args_.dq, first_ + i);
    for (int x = 0; x < sizes_.head_dim; ++x) {
      const Real sum = arrays_.dq[x * sizes_.queries + i];
      dq[x] = args_.carry ? dq[x] + sum : sum;
    }
  }

  const Team& team_;
  const AttendBackwardArgs& args_;
  const TileSizes& sizes_;
  const HeadRows rows_;
  const std::int64_t first_;
  int count_ = 0;
  QueryGradientScratch<Real> arrays_;
};

}  // namespace distattn::kernels::portable
