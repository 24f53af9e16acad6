#pragma once
/// The forward pass of one block of queries: FlashAttention-2's loop over tiles of keys with an online softmax.

#include <cmath>

#include "distattn/partial.hpp"
#include "kernels/portable/pair_terms.hpp"
#include "kernels/scores.hpp"
#include "kernels/statistics.hpp"

namespace distattn::kernels::portable {

/// Arrays of a team. Queries are along the columns of its tiles.
template <class Real>
struct AttendScratch {
  Real *q, *k, *v, *scores, *o;  ///< q[x][i], k[j][x], v[j][x], scores[j][i], o[x][i]
  Real *top, *sum, *shrink, *largest;
  Sight sight;
  std::size_t bytes;

  DISTATTN_HOST_DEVICE AttendScratch(std::byte* memory, const TileSizes& sizes) {
    Carver carver(memory);
    q = carver.take<Real>(static_cast<std::ptrdiff_t>(sizes.head_columns) * sizes.queries);
    k = carver.take<Real>(static_cast<std::ptrdiff_t>(sizes.head_columns) * sizes.keys);
    v = carver.take<Real>(static_cast<std::ptrdiff_t>(sizes.value_columns) * sizes.keys);
    scores = carver.take<Real>(static_cast<std::ptrdiff_t>(sizes.keys) * sizes.queries);
    o = carver.take<Real>(static_cast<std::ptrdiff_t>(sizes.value_columns) * sizes.queries);
    top = carver.take<Real>(sizes.queries);
    sum = carver.take<Real>(sizes.queries);
    shrink = carver.take<Real>(sizes.queries);
    largest = carver.take<Real>(sizes.queries);
    sight = Sight(carver, sizes.queries);
    bytes = carver.used();
  }
};

/// `Team` knows this thread's place, waits for its threads, has the functions of tiles, knows when to stop, and raises
/// numbers that teams share.
template <class Real, class Team>
class AttendBlock {
 public:
  DISTATTN_HOST_DEVICE AttendBlock(const Team& team, const AttendArgs& args, const Item& item, const TileSizes& sizes,
                                   std::byte* memory)
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
    team_.tiles().load_transposed(team_.place(), rows_.of(args_.q, args_.shape.dtype, first_), count_, sizes_.head_dim,
                                  {arrays_.q, sizes_.queries, sizes_.head_columns, sizes_.queries});
    if (!args_.carry) for_rows([this](int i) { write_nothing(i); });
    for_rows([this](int i) { arrays_.largest[i] = static_cast<Real>(-INFINITY); });
    begin_sums();
    for (const KeySide& side : args_.keys) {
      for (const Band& band : side.bands) attend_band(side, band);
      settle();
    }
    if (args_.max_logit != nullptr) for_rows([this](int i) { raise(i); });
  }

 private:
  /// Tiles after which sums go into the result, so that they do not round more for many keys than for some.
  static constexpr std::int64_t settled_tiles = 64;

  template <class Body>
  DISTATTN_HOST_DEVICE void for_rows(Body body) const {
    for (int i = team_.place().rank; i < count_; i += team_.place().size) body(i);
  }

  DISTATTN_HOST_DEVICE void begin_sums() {
    const Place place = team_.place();
    for (int i = place.rank; i < sizes_.queries; i += place.size) {
      arrays_.top[i] = static_cast<Real>(-INFINITY);
      arrays_.sum[i] = 0;
    }
    const int size = sizes_.value_columns * sizes_.queries;
    for (int i = place.rank; i < size; i += place.size) arrays_.o[i] = 0;
    team_.wait();
    has_sums_ = false;
  }

  DISTATTN_HOST_DEVICE void write_nothing(int i) const {
    Real* const o = rows_.row_of<Real>(args_.o, first_ + i);
    for (int x = 0; x < sizes_.value_dim; ++x) o[x] = 0;
    const std::int64_t at = rows_.statistic_of(first_ + i);
    static_cast<Real*>(args_.lse)[at] = static_cast<Real>(-INFINITY);
    store_low(args_.lse_low, at, 0.f);
  }

  DISTATTN_HOST_DEVICE void attend_band(const KeySide& side, const Band& band) {
    if (classify(band, positions_of(rows_, args_.queries, first_, count_), side.keys) == Coverage::skip) return;
    team_.wait();
    const Place place = team_.place();
    for (int i = place.rank; i < sizes_.queries; i += place.size) {
      // Rows beyond the last see what all others do: they come to nothing.
      arrays_.sight.set(i, i < count_ ? seen_keys<Real>(rows_, first_ + i, args_.queries, band, side.keys, nullptr)
                                      : IndexRange{0, side.keys.count});
    }
    team_.wait();
    const IndexRange seen = arrays_.sight.hull(count_);
    for (std::int64_t key = seen.begin / sizes_.keys * sizes_.keys; key < seen.end; key += sizes_.keys) {
      if (team_.is_stopped()) return;
      const std::int64_t span = key / (sizes_.keys * settled_tiles);
      if (has_sums_ && span != span_) settle();
      span_ = span;
      const std::int64_t left = side.keys.count - key;
      attend_tile(side, key, left < sizes_.keys ? static_cast<int>(left) : sizes_.keys);
      has_sums_ = true;
    }
  }

  DISTATTN_HOST_DEVICE void attend_tile(const KeySide& side, std::int64_t key, int keys) {
    const auto& tiles = team_.tiles();
    const Place place = team_.place();
    load(side, side.k, key, keys, sizes_.head_dim, {arrays_.k, sizes_.head_columns, sizes_.keys, sizes_.head_columns});
    const bool is_finite = team_.all(load(side, side.v, key, keys, sizes_.value_dim,
                                          {arrays_.v, sizes_.value_columns, sizes_.keys, sizes_.value_columns}));
    team_.wait();
    const Tile<Real> scores{arrays_.scores, sizes_.queries, sizes_.keys, sizes_.queries};
    tiles.multiply(place, {scores.values, scores.stride, arrays_.k, sizes_.head_columns, 1, arrays_.q, sizes_.queries,
                           scores.rows, scores.columns, sizes_.head_dim, factor_of<Real>(args_.shape.scores)});
    team_.wait();
    tiles.map(place, args_.shape.scores, scores);
    team_.wait();
    const Pairs pairs{args_.shape, rows_,        args_.queries,
                      first_,      count_,       {side.keys.at(key), keys, side.keys.stride},
                      1,           scores.stride};
    if (args_.shape.alibi_slopes != nullptr) {
      add_biases(place, pairs, scores.values);
      team_.wait();
    }
    const bool sees_all = keys == sizes_.keys && arrays_.sight.all(count_, {key, key + keys});
    if (!sees_all) hide(scores, key, keys);
    team_.wait();
    if (args_.max_logit != nullptr) look_for_largest(scores);
    tiles.weigh(place, scores, arrays_.top, arrays_.sum, arrays_.shrink);
    team_.wait();
    if (args_.shape.dropout != nullptr) drop(tiles, place, pairs, scores.values);
    const int value_rows = padded(sizes_.value_dim, row_step);
    const Tile<Real> o{arrays_.o, sizes_.queries, value_rows, sizes_.queries};
    tiles.shrink(place, o, arrays_.shrink);
    team_.wait();
    if (is_finite || sees_all) {
      tiles.multiply(place, {o.values, o.stride, arrays_.v, 1, sizes_.value_columns, scores.values, scores.stride,
                             o.rows, o.columns, keys, Real(1), true});
    } else {
      add_seen(scores, key, keys);
    }
    team_.wait();
  }

  /// Rows of keys or values, run by run where they lie in pages. Whether what this thread loaded is finite.
  DISTATTN_HOST_DEVICE bool load(const KeySide& side, const ConstRows& from, std::int64_t key, int keys, int dim,
                                 const Tile<Real>& into) const {
    bool is_finite = true;
    for (int at = 0, count; at < keys; at += count) {
      const std::int64_t first = key + at;
      count = static_cast<int>(side.pages.end_of_run(first, key + keys) - first);
      const bool is_last = at + count == keys;
      const TensorRows rows = key_rows(side, from, args_.shape.dtype, rows_.batch, rows_.kv, first);
      const Tile<Real> part{into.values + static_cast<std::ptrdiff_t>(at) * into.stride, into.stride,
                            is_last ? into.rows - at : count, into.columns};
      is_finite = team_.tiles().load(team_.place(), rows, count, dim, part) && is_finite;
    }
    return is_finite;
  }

  /// Scores of what is not seen, and of rows and keys beyond the last, are −∞.
  DISTATTN_HOST_DEVICE void hide(const Tile<Real>& scores, std::int64_t key, int keys) const {
    const Place place = team_.place();
    for (int j = place.rank; j < scores.rows; j += place.size) {
      Real* const row = scores.values + static_cast<std::ptrdiff_t>(j) * scores.stride;
      for (int i = 0; i < scores.columns; ++i) {
        const bool is_seen = j < keys && arrays_.sight.holds(i, key + j);
        row[i] = is_seen ? row[i] : static_cast<Real>(-INFINITY);
      }
    }
  }

  DISTATTN_HOST_DEVICE void look_for_largest(const Tile<Real>& scores) const {
    for (int j = 0; j < scores.rows; ++j) {
      const Real* const row = scores.values + static_cast<std::ptrdiff_t>(j) * scores.stride;
      for_rows([&](int i) {
        const Real score = row[i], largest = arrays_.largest[i];
        arrays_.largest[i] = score > largest || score != score ? score : largest;
      });
    }
  }

  DISTATTN_HOST_DEVICE void raise(int i) const {
    Real* const of_heads = static_cast<Real*>(args_.max_logit) + rows_.batch * rows_.q_count;
    team_.raise(of_heads[rows_.head_of(first_ + i)], arrays_.largest[i]);
  }

  /// The product with values some of which are not finite, of which a weight of 0 would make NaN.
  DISTATTN_HOST_DEVICE void add_seen(const Tile<Real>& weights, std::int64_t key, int keys) const {
    for_rows([&](int i) {
      for (int j = 0; j < keys; ++j) {
        if (!arrays_.sight.holds(i, key + j)) continue;
        const Real weight = weights.values[static_cast<std::ptrdiff_t>(j) * weights.stride + i];
        const Real* const value = arrays_.v + static_cast<std::ptrdiff_t>(j) * sizes_.value_columns;
        for (int x = 0; x < sizes_.value_dim; ++x) arrays_.o[x * sizes_.queries + i] += weight * value[x];
      }
    });
  }

  /// Merges what was summed into the result, and begins anew.
  DISTATTN_HOST_DEVICE void settle() {
    if (!has_sums_) return;
    team_.wait();
    for_rows([this](int i) { settle_row(i); });
    team_.wait();
    begin_sums();
  }

  DISTATTN_HOST_DEVICE void settle_row(int i) const {
    const Real top = arrays_.top[i], sum = arrays_.sum[i];
    if (top == static_cast<Real>(-INFINITY) && sum == 0) return;
    const std::int64_t at = rows_.statistic_of(first_ + i);
    Real* const lse = static_cast<Real*>(args_.lse) + at;
    Real* const o = rows_.row_of<Real>(args_.o, first_ + i);
    const double log_sum = std::log(static_cast<double>(sum));  // its float could be off by more than a low part
    const Real high = static_cast<Real>(log_sum);
    SplitLse<Real> own = split_lse(top, high);
    own = split_lse(own.high, own.low + static_cast<Real>(log_sum - static_cast<double>(high)));
    const SplitLse<Real> before{*lse, static_cast<Real>(stored_low(args_.lse_low, at))};
    const auto weights = merge_weights(before, own);
    const bool is_first = before.high == static_cast<Real>(-INFINITY);
    const Real scale = weights.scale_b / sum;
    for (int x = 0; x < sizes_.value_dim; ++x) {
      const Real added = scale * arrays_.o[x * sizes_.queries + i];
      o[x] = is_first ? added : weights.scale_a * o[x] + added;
    }
    *lse = weights.lse.high;
    store_low(args_.lse_low, at, static_cast<float>(weights.lse.low));
  }

  const Team& team_;
  const AttendArgs& args_;
  const TileSizes& sizes_;
  const HeadRows rows_;
  const std::int64_t first_;
  int count_ = 0;
  AttendScratch<Real> arrays_;
  std::int64_t span_ = 0;
  bool has_sums_ = false;
};

}  // namespace distattn::kernels::portable
