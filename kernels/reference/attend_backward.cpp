#include <algorithm>
#include <vector>

#include "distattn/index.hpp"
#include "kernels/dropout.hpp"
#include "kernels/element.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/parallel.hpp"
#include "kernels/reference/loops.hpp"
#include "kernels/reference/reference.hpp"
#include "kernels/statistics.hpp"

namespace distattn::kernels::reference {

namespace {

/// Queries and keys whose terms are summed by themselves before they are added to a gradient.
constexpr std::int64_t tile_side = 128;

/// Adds rows that are summed up, and clears them.
template <class Sum>
void add_rows(const Rows& rows, std::int64_t b, int head, IndexRange tokens, int dim, std::vector<Sum>& sums) {
  Sum* sum = sums.data();
  for (std::int64_t i = tokens.begin; i < tokens.end; ++i, sum += dim) {
    add_scaled(row_of<Sum>(rows, b, head, i), Sum(1), sum, dim);
  }
  std::fill(sums.data(), sum, Sum(0));
}

/// Some queries of one head and what a band shows them of a key segment: the formulas of docs/mathematics.md, line by
/// line.
template <class Element, class Map>
class BackwardBlock {
 public:
  using Sum = AccumulatorOf<Element>;

  BackwardBlock(const AttendBackwardArgs& args, const Map& map, const KeySide& side, std::int64_t b, int h)
      : args_(args), map_(map), side_(side), b_(b), h_(h), kv_(args.shape.heads.kv_of(h)) {}

  void add(const Band& band, IndexRange queries) {
    IndexRange seeing{queries.end, 0}, keys{side_.keys.count, 0};
    for (std::int64_t i = queries.begin; i < queries.end; ++i) {
      IndexRange& seen = visible_[i % tile_side];
      seen = lse(i) == -INFINITY ? IndexRange{} : band_keys(band, args_.queries.at(i), side_.keys);
      if (seen.empty()) continue;
      seeing = {std::min(seeing.begin, i), i + 1};
      keys = {std::min(keys.begin, seen.begin), std::max(keys.end, seen.end)};
    }
    for (std::int64_t begin = keys.begin; begin < keys.end; begin += tile_side) {
      add_tile(seeing, {begin, std::min(begin + tile_side, keys.end)});
    }
  }

 private:
  std::int64_t row(std::int64_t i) const { return (b_ * shape_.heads.q_count + h_) * args_.queries.count + i; }
  Sum lse(std::int64_t i) const { return static_cast<const Sum*>(args_.lse)[row(i)]; }

  void add_tile(IndexRange queries, IndexRange keys) {
    for (std::int64_t i = queries.begin; i < queries.end; ++i) {
      const IndexRange& seen = visible_[i % tile_side];
      for (std::int64_t j = std::max(seen.begin, keys.begin); j < std::min(seen.end, keys.end); ++j) {
        add_pair(i, i - queries.begin, j, j - keys.begin);
      }
    }
    add_rows(args_.dq, b_, h_, queries, shape_.head_dim, dq_);
    add_rows(side_.dk, b_, kv_, keys, shape_.head_dim, dk_);
    add_rows(side_.dv, b_, kv_, keys, shape_.value_dim, dv_);
  }

  /// Query i and key j, which are those of that row and column of the tile.
  void add_pair(std::int64_t i, std::int64_t at_row, std::int64_t j, std::int64_t at_column) {
    const auto* q = row_of<Element>(args_.q, b_, h_, i);
    const auto* d_o = row_of<Element>(args_.d_o, b_, h_, i);
    const auto* k = row_of<Element>(side_.k, b_, kv_, j);
    const auto* v = row_of<Element>(side_.v, b_, kv_, j);
    const Sum delta = static_cast<const Sum*>(args_.delta)[row(i)];
    const Sum low = static_cast<Sum>(stored_low(args_.lse_low, row(i)));
    const auto [score, product] =
        score_of(map_, q, k, shape_.head_dim, slope_of(shape_, h_), args_.queries.at(i), side_.keys.at(j));
    const Sum p = std::exp(std::min(score - lse(i) - low, Sum(0)));
    const auto kept =
        static_cast<Sum>(dropout_.limit == 0 ? 1 : dropout_.factor(args_.queries.at(i), side_.keys.at(j)));
    const Sum ds = map_.gradient(p * (kept * dot<Sum>(d_o, v, shape_.value_dim) - delta), map_.derivative(product));
    add_scaled(dv_.data() + at_column * shape_.value_dim, kept * p, d_o, shape_.value_dim);
    add_scaled(dq_.data() + at_row * shape_.head_dim, map_.factor() * ds, k, shape_.head_dim);
    add_scaled(dk_.data() + at_column * shape_.head_dim, map_.factor() * ds, q, shape_.head_dim);
  }

  /// Zeros, and so it leaves them; kept by the thread.
  template <int which>
  static std::vector<Sum>& tile_of(int dim) {
    thread_local std::vector<Sum> tile;
    tile.resize(std::max(tile.size(), index(tile_side * dim)));
    return tile;
  }

  const AttendBackwardArgs& args_;
  const Map& map_;
  const TileShape& shape_ = args_.shape;
  const KeySide& side_;
  const std::int64_t b_;
  const int h_, kv_;
  const HeadDropout dropout_ = head_dropout(shape_, b_, h_);
  IndexRange visible_[tile_side];
  std::vector<Sum>& dq_ = tile_of<0>(shape_.head_dim);
  std::vector<Sum>& dk_ = tile_of<1>(shape_.head_dim);
  std::vector<Sum>& dv_ = tile_of<2>(shape_.value_dim);
};

template <class Sum>
void clear_rows(const Rows& rows, std::int64_t b, int head, std::int64_t count, int dim) {
  for (std::int64_t i = 0; i < count; ++i) std::fill_n(row_of<Sum>(rows, b, head, i), dim, Sum(0));
}

// All operations' share of one key head: nothing that another key head's share writes.
template <class Element, class Map>
void attend_backward_head(const AttendBackwardArgs& args, const Map& map, std::int64_t b, int kv) {
  using Sum = AccumulatorOf<Element>;
  const TileShape& shape = args.shape;
  for (const KeySide& side : args.keys) {
    if (side.carry) continue;
    clear_rows<Sum>(side.dk, b, kv, side.keys.count, shape.head_dim);
    clear_rows<Sum>(side.dv, b, kv, side.keys.count, shape.value_dim);
  }
  for (int h = 0; h < shape.heads.q_count; ++h) {
    if (shape.heads.kv_of(h) != kv) continue;
    if (!args.carry) clear_rows<Sum>(args.dq, b, h, args.queries.count, shape.head_dim);
    for (const KeySide& side : args.keys) {
      BackwardBlock<Element, Map> block(args, map, side, b, h);
      for (const Band& band : side.bands) {
        for (std::int64_t i = 0; i < args.queries.count; i += tile_side) {
          block.add(band, {i, std::min(i + tile_side, args.queries.count)});
        }
      }
    }
  }
}

}  // namespace

void attend_backward(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop) {
  for (const auto& args : operations) {
    clear_sums(args);
    with_element_and_scores(args.shape, [&]<class Element>(Element, const auto& map) {
      const int heads = args.shape.heads.kv_count;
      for_each_item(team, args.shape.batch * heads, stop, [&](std::int64_t item) {
        attend_backward_head<Element>(args, map, item / heads, static_cast<int>(item % heads));
      });
    });
  }
}

}  // namespace distattn::kernels::reference
