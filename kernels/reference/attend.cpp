#include <vector>

#include "distattn/index.hpp"
#include "distattn/partial.hpp"
#include "kernels/dropout.hpp"
#include "kernels/element.hpp"
#include "kernels/parallel.hpp"
#include "kernels/raise.hpp"
#include "kernels/reference/loops.hpp"
#include "kernels/reference/reference.hpp"
#include "kernels/statistics.hpp"

namespace distattn::kernels::reference {

namespace {

/// Keys that are summed one after the other.
constexpr std::int64_t summed_keys = 128;

/// One query and the keys of one head that a band shows it.
template <class Element, class Map>
struct QueryKeys {
  using Sum = AccumulatorOf<Element>;
  const TileShape& shape;
  const Map& map;
  const Element* q;
  const KeySide& side;
  std::int64_t b;
  int kv;
  double slope;
  std::int64_t position;  ///< of the query
  Sum* largest;           ///< score so far
  const HeadDropout& dropout;

  /// Their partial result: softmax in two passes for some keys, merged in pairs for more. Behind o there is room for an
  /// output for every time that the keys can be halved.
  SplitLse<Sum> attend(IndexRange keys, Sum* o) const {
    if (keys.end - keys.begin <= summed_keys) return attend_some(keys, o);
    const std::int64_t middle = keys.begin + (keys.end - keys.begin) / 2;
    Sum* const other = o + shape.value_dim;
    const SplitLse<Sum> first = attend({keys.begin, middle}, o), second = attend({middle, keys.end}, other);
    return merge(o, first, other, second, shape.value_dim);
  }

  static SplitLse<Sum> merge(Sum* o, const SplitLse<Sum>& lse, const Sum* other, const SplitLse<Sum>& other_lse,
                             int dim) {
    const auto weights = merge_weights(lse, other_lse);
    for (int x = 0; x < dim; ++x) o[x] = weights.scale_a * o[x] + weights.scale_b * other[x];
    return weights.lse;
  }

 private:
  const Element* key_row(const ConstRows& rows, std::int64_t j) const {
    return static_cast<const Element*>(rows.data) + side.offset(rows, b, kv, j);
  }
  double factor_of_pair(std::int64_t j) const {
    return dropout.limit == 0 ? 1 : dropout.factor(position, side.keys.at(j));
  }
  SplitLse<Sum> attend_some(IndexRange keys, Sum* o) const {
    Sum scores[summed_keys];
    Sum top = -INFINITY;
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      const Sum score = scores[j - keys.begin] =
          score_of(map, q, key_row(side.k, j), shape.head_dim, slope, position, side.keys.at(j)).score;
      if (score > top || score != score) top = score;
    }
    if (top > *largest || top != top) *largest = top;
    std::fill_n(o, shape.value_dim, Sum(0));
    if (top == -INFINITY) return {};
    Sum sum = 0;
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      const Sum p = std::exp(scores[j - keys.begin] - top);
      sum += p;
      const Sum kept = p * static_cast<Sum>(factor_of_pair(j));
      add_scaled(o, kept, key_row(side.v, j), shape.value_dim);
    }
    for (int x = 0; x < shape.value_dim; ++x) o[x] /= sum;
    const double log_sum = std::log(static_cast<double>(sum));  // its float could be off by more than a low part
    const auto high = static_cast<Sum>(log_sum);
    const SplitLse<Sum> lse = split_lse(top, high);
    return split_lse(lse.high, lse.low + static_cast<Sum>(log_sum - static_cast<double>(high)));
  }
};

template <class Element, class Map>
void attend_query(const AttendArgs& args, const Map& map, std::int64_t b, int h, std::int64_t i) {
  using Sum = AccumulatorOf<Element>;
  const TileShape& shape = args.shape;
  const auto* q = row_of<Element>(args.q, b, h, i);
  auto* o = row_of<Sum>(args.o, b, h, i);
  const std::int64_t row = (b * shape.heads.q_count + h) * args.queries.count + i;
  SplitLse<Sum> lse;
  Sum largest = -INFINITY;
  const HeadDropout dropout = head_dropout(shape, b, h);
  if (args.carry) {
    lse = {static_cast<const Sum*>(args.lse)[row], static_cast<Sum>(stored_low(args.lse_low, row))};
  } else {
    std::fill(o, o + shape.value_dim, Sum(0));
  }
  constexpr int halvings = 64;
  thread_local std::vector<Sum> part;
  part.resize(index((1 + halvings) * shape.value_dim));
  for (const KeySide& side : args.keys) {
    for (const Band& band : side.bands) {
      const IndexRange visible = band_keys(band, args.queries.at(i), side.keys);
      if (visible.empty()) continue;
      const QueryKeys<Element, Map> seen{
          shape, map, q, side, b, shape.heads.kv_of(h), slope_of(shape, h), args.queries.at(i), &largest, dropout};
      const SplitLse<Sum> part_lse = seen.attend(visible, part.data());
      lse = QueryKeys<Element, Map>::merge(o, lse, part.data(), part_lse, shape.value_dim);
    }
  }
  static_cast<Sum*>(args.lse)[row] = lse.high;
  store_low(args.lse_low, row, static_cast<float>(lse.low));
  if (args.max_logit != nullptr) raise(static_cast<Sum*>(args.max_logit)[b * shape.heads.q_count + h], largest);
}

}  // namespace

void attend(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop) {
  for (const auto& args : operations) {
    with_element_and_scores(args.shape, [&]<class Element>(Element, const auto& map) {
      const std::int64_t heads = args.shape.heads.q_count, tokens = args.queries.count;
      for_each_item(team, args.shape.batch * heads * tokens, stop, [&](std::int64_t row) {
        attend_query<Element>(args, map, row / (heads * tokens), static_cast<int>(row / tokens % heads), row % tokens);
      });
    });
  }
}

}  // namespace distattn::kernels::reference
