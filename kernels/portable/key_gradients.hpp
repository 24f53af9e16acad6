#pragma once
/// dK and dV of one block of keys, which visits the queries that see them, of all operations in a list that add to it.

#include "kernels/portable/gradient_parts.hpp"

namespace distattn::kernels::portable {

/// One key segment of one operation.
struct Contribution {
  std::int32_t operation, side;
};

/// Arrays of a team. Keys are along the columns of its tiles of scores.
template <class Real>
struct KeyGradientScratch {
  Real *k, *v, *q, *d_o;   ///< k[x][j], v[x][j], q[i][x], d_o[i][x]
  ScoreTiles<Real> tiles;  ///< [i][j]
  Real *dk, *dv;           ///< [j][x]
  RowValues<Real> row_values;
  Sight sight;
  std::size_t bytes;

  DISTATTN_HOST_DEVICE KeyGradientScratch(std::byte* memory, const TileSizes& sizes) {
    Carver carver(memory);
    const std::ptrdiff_t head = sizes.head_columns, value = sizes.value_columns;
    k = carver.take<Real>(head * sizes.keys);
    v = carver.take<Real>(value * sizes.keys);
    q = carver.take<Real>(head * sizes.queries);
    d_o = carver.take<Real>(value * sizes.queries);
    tiles = ScoreTiles<Real>(carver, sizes);
    dk = carver.take<Real>(head * sizes.keys);
    dv = carver.take<Real>(value * sizes.keys);
    row_values = RowValues<Real>(carver, sizes.queries);
    sight = Sight(carver, sizes.queries);
    bytes = carver.used();
  }
};

template <class Real, class Team>
class KeyGradientBlock {
 public:
  /// Keys [item.first, …) of a key head.
  DISTATTN_HOST_DEVICE KeyGradientBlock(const Team& team, const Item& item, const TileSizes& sizes, std::byte* memory)
      : team_(team), item_(item), sizes_(sizes), arrays_(memory, sizes) {}

  DISTATTN_HOST_DEVICE void run(std::span<const AttendBackwardArgs> operations,
                                std::span<const Contribution> contributions) {
    const KeySide* last = nullptr;
    for (const Contribution& each : contributions) {
      const AttendBackwardArgs& args = operations[static_cast<std::size_t>(each.operation)];
      const KeySide& side = args.keys[static_cast<std::size_t>(each.side)];
      const std::int64_t left = side.keys.count - item_.first;
      keys_ = left < sizes_.keys ? static_cast<int>(left) : sizes_.keys;
      if (last == nullptr || last->k.data != side.k.data || last->v.data != side.v.data) load_keys(args, side);
      if (last == nullptr || !side.carry) begin(side);
      last = &side;
      const HeadRows rows(args.shape, args.queries, item_.batch, item_.kv);
      for (std::int64_t first = 0; first < rows.count(); first += sizes_.queries) add_rows(args, side, rows, first);
    }
    if (last != nullptr) write(*last);
  }

 private:
  DISTATTN_HOST_DEVICE void load_keys(const AttendBackwardArgs& args, const KeySide& side) {
    const DType dtype = args.shape.dtype;
    team_.wait();
    team_.tiles().load_transposed(team_.place(), key_rows(side, side.k, dtype, item_.batch, item_.kv, item_.first),
                                  keys_, sizes_.head_dim, {arrays_.k, sizes_.keys, sizes_.head_columns, sizes_.keys});
    team_.tiles().load_transposed(team_.place(), key_rows(side, side.v, dtype, item_.batch, item_.kv, item_.first),
                                  keys_, sizes_.value_dim, {arrays_.v, sizes_.keys, sizes_.value_columns, sizes_.keys});
    team_.wait();
  }

  DISTATTN_HOST_DEVICE static Real* row_of(const Rows& rows, const Item& item, std::int64_t j) {
    return static_cast<Real*>(rows.data) + item.batch * rows.strides.batch + item.kv * rows.strides.head +
           (item.first + j) * rows.strides.token;
  }

  DISTATTN_HOST_DEVICE static bool lies_in_keys(const KeySide& side) { return side.dv.data == side.dk.data; }

  /// From what is there, or nothing.
  DISTATTN_HOST_DEVICE void begin(const KeySide& side) {
    const Place place = team_.place();
    for (int j = place.rank; j < sizes_.keys; j += place.size) {
      const bool is_carried = side.carry && j < keys_;
      Real* const dk = arrays_.dk + static_cast<std::ptrdiff_t>(j) * sizes_.head_columns;
      Real* const dv = arrays_.dv + static_cast<std::ptrdiff_t>(j) * sizes_.value_columns;
      for (int x = 0; x < sizes_.head_columns; ++x) {
        dk[x] = is_carried && x < sizes_.head_dim ? row_of(side.dk, item_, j)[x] : Real(0);
      }
      for (int x = 0; x < sizes_.value_columns; ++x) {
        dv[x] = is_carried && !lies_in_keys(side) && x < sizes_.value_dim ? row_of(side.dv, item_, j)[x] : Real(0);
      }
    }
    team_.wait();
  }

  DISTATTN_HOST_DEVICE void write(const KeySide& side) const {
    team_.wait();
    for (int j = team_.place().rank; j < keys_; j += team_.place().size) {
      Real* const dk = row_of(side.dk, item_, j);
      Real* const dv = row_of(side.dv, item_, j);
      for (int x = 0; x < sizes_.head_dim; ++x) {
        dk[x] = arrays_.dk[static_cast<std::ptrdiff_t>(j) * sizes_.head_columns + x];
      }
      for (int x = 0; x < sizes_.value_dim; ++x) {
        const Real of_values = arrays_.dv[static_cast<std::ptrdiff_t>(j) * sizes_.value_columns + x];
        dv[x] = lies_in_keys(side) ? dv[x] + of_values : of_values;
      }
    }
  }

  DISTATTN_HOST_DEVICE void add_rows(const AttendBackwardArgs& args, const KeySide& side, const HeadRows& rows,
                                     std::int64_t first) {
    const std::int64_t left = rows.count() - first;
    const int count = left < sizes_.queries ? static_cast<int>(left) : sizes_.queries;
    const Run positions = positions_of(rows, args.queries, first, count);
    const Run keys{side.keys.at(item_.first), keys_, side.keys.stride};
    bool is_loaded = false;
    for (const Band& band : side.bands) {
      if (classify(band, positions, keys) == Coverage::skip || team_.is_stopped()) continue;
      team_.wait();
      see_keys<Real>(arrays_.sight, args, rows, first, count, sizes_.queries, band, keys, team_.place());
      team_.wait();
      if (arrays_.sight.hull(count).empty()) continue;
      if (!is_loaded) load_rows(args, rows, first, count);
      is_loaded = true;
      add_tile({args.shape, rows, args.queries, first, count, keys, sizes_.keys, 1});
    }
  }

  DISTATTN_HOST_DEVICE void load_rows(const AttendBackwardArgs& args, const HeadRows& rows, std::int64_t first,
                                      int count) {
    const Place place = team_.place();
    const DType dtype = args.shape.dtype;
    q_is_finite_ = team_.all(team_.tiles().load(place, rows.of(args.q, dtype, first), count, sizes_.head_dim,
                                                {arrays_.q, sizes_.head_columns, sizes_.queries, sizes_.head_columns}));
    d_o_is_finite_ =
        team_.all(team_.tiles().load(place, rows.of(args.d_o, dtype, first), count, sizes_.value_dim,
                                     {arrays_.d_o, sizes_.value_columns, sizes_.queries, sizes_.value_columns}));
    arrays_.row_values.load(args, rows, first, count, sizes_.queries, place);
    team_.wait();
  }

  DISTATTN_HOST_DEVICE void add_tile(const Pairs& pairs) {
    const auto& tiles = team_.tiles();
    const Place place = team_.place();
    const Real factor = factor_of<Real>(pairs.shape.scores);
    const int keys = sizes_.keys, count = pairs.count;
    const Tile<Real> scores{arrays_.tiles.scores, keys, sizes_.queries, keys};
    tiles.multiply(place, {scores.values, keys, arrays_.q, sizes_.head_columns, 1, arrays_.k, keys, scores.rows, keys,
                           sizes_.head_dim, factor});
    tiles.multiply(place, {arrays_.tiles.products, keys, arrays_.d_o, sizes_.value_columns, 1, arrays_.v, keys,
                           scores.rows, keys, sizes_.value_dim});
    team_.wait();
    differentiate_tile(team_, pairs, arrays_.tiles, scores, arrays_.row_values.values());
    if (pairs.shape.dropout != nullptr) {
      drop(tiles, place, pairs, scores.values);
      team_.wait();
    }
    const Tile<Real> d_products{arrays_.tiles.products, keys, sizes_.queries, keys};
    const bool sees_all = keys_ == keys && arrays_.sight.all(count, {0, keys});
    if (!sees_all) {
      const auto is_seen = [this](int i, int j) { return arrays_.sight.holds(i, j); };
      clear_unseen(scores, place, is_seen);
      clear_unseen(d_products, place, is_seen);
    }
    team_.wait();
    add(scores, arrays_.d_o, arrays_.dv, sizes_.value_columns, count, Real(1), sees_all || d_o_is_finite_);
    add(d_products, arrays_.q, arrays_.dk, sizes_.head_columns, count, factor, sees_all || q_is_finite_);
    team_.wait();
  }

  /// sums[j][x] += factor · Σ_i of[i][j] · rows[i][x], where not all of the rows are finite only over those that see
  /// key j, of which 0 would make NaN.
  DISTATTN_HOST_DEVICE void add(const Tile<Real>& of, const Real* rows, Real* sums, int columns, int count, Real factor,
                                bool over_all) const {
    const Place place = team_.place();
    if (over_all) {
      team_.tiles().multiply(
          place, {sums, columns, of.values, 1, of.stride, rows, columns, sizes_.keys, columns, count, factor, true});
      return;
    }
    for (int j = place.rank; j < keys_; j += place.size) {
      for (int i = 0; i < count; ++i) {
        if (!arrays_.sight.holds(i, j)) continue;
        const Real value = factor * of.values[static_cast<std::ptrdiff_t>(i) * of.stride + j];
        const Real* const row = rows + static_cast<std::ptrdiff_t>(i) * columns;
        for (int x = 0; x < columns; ++x) sums[static_cast<std::ptrdiff_t>(j) * columns + x] += value * row[x];
      }
    }
  }

  const Team& team_;
  const Item& item_;
  const TileSizes& sizes_;
  KeyGradientScratch<Real> arrays_;
  int keys_ = 0;
  bool q_is_finite_ = true, d_o_is_finite_ = true;
};

}  // namespace distattn::kernels::portable
