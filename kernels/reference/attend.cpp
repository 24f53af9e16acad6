#include <vector>

#include "distattn/partial.hpp"
#include "kernels/element.hpp"
#include "kernels/parallel.hpp"
#include "kernels/reference/loops.hpp"
#include "kernels/reference/reference.hpp"

namespace distattn::kernels::reference {

namespace {

/// Keys that are summed one after the other.
constexpr std::int64_t summed_keys = 128;

/// One query and the keys of one head that a band shows it.
template <class Element>
struct QueryKeys {
  using Sum = AccumulatorOf<Element>;
  const TileShape& shape;
  const Element* q;
  const KeySide& side;
  std::int64_t b;
  int kv;

  /// Their partial result: softmax in two passes for some keys, merged in pairs for more. Behind o there is room for an
  /// output for every time that the keys can be halved.
  Sum attend(IndexRange keys, Sum* o) const {
    if (keys.end - keys.begin <= summed_keys) return attend_some(keys, o);
    const std::int64_t middle = keys.begin + (keys.end - keys.begin) / 2;
    Sum* const other = o + shape.value_dim;
    const Sum first = attend({keys.begin, middle}, o), second = attend({middle, keys.end}, other);
    return merge(o, first, other, second, shape.value_dim);
  }

  static Sum merge(Sum* o, Sum lse, const Sum* other, Sum other_lse, int dim) {
    const auto weights = merge_weights(lse, other_lse);
    for (int x = 0; x < dim; ++x) o[x] = weights.scale_a * o[x] + weights.scale_b * other[x];
    return weights.lse;
  }

 private:
  Sum attend_some(IndexRange keys, Sum* o) const {
    Sum scores[summed_keys];
    Sum top = -INFINITY;
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      const Sum product = dot<Sum>(q, row_of<Element>(side.k, b, kv, j), shape.head_dim);
      const Sum score = scores[j - keys.begin] = static_cast<Sum>(shape.scale) * product;
      if (score > top || score != score) top = score;
    }
    std::fill_n(o, shape.value_dim, Sum(0));
    if (top == -INFINITY) return top;
    Sum sum = 0;
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      const Sum p = std::exp(scores[j - keys.begin] - top);
      sum += p;
      add_scaled(o, p, row_of<Element>(side.v, b, kv, j), shape.value_dim);
    }
    for (int x = 0; x < shape.value_dim; ++x) o[x] /= sum;
    return top + std::log(sum);
  }
};

template <class Element>
void attend_query(const AttendArgs& args, std::int64_t b, int h, std::int64_t i) {
  using Sum = AccumulatorOf<Element>;
  const TileShape& shape = args.shape;
  const auto* q = row_of<Element>(args.q, b, h, i);
  auto* o = row_of<Sum>(args.o, b, h, i);
  auto* lse = static_cast<Sum*>(args.lse) + (b * shape.heads.q_count + h) * args.queries.count + i;
  if (!args.carry) {
    std::fill(o, o + shape.value_dim, Sum(0));
    *lse = -INFINITY;
  }
  constexpr int halvings = 64;
  thread_local std::vector<Sum> part;
  part.resize(static_cast<std::size_t>((1 + halvings) * shape.value_dim));
  for (const KeySide& side : args.keys) {
    for (const Band& band : side.bands) {
      const IndexRange visible = band_keys(band, args.queries.at(i), side.keys);
      if (visible.empty()) continue;
      const QueryKeys<Element> seen{shape, q, side, b, shape.heads.kv_of(h)};
      const Sum part_lse = seen.attend(visible, part.data());
      *lse = QueryKeys<Element>::merge(o, *lse, part.data(), part_lse, shape.value_dim);
    }
  }
}

}  // namespace

void attend(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop) {
  for (const auto& args : operations) {
    with_element(args.shape.dtype, [&]<class Element>(Element) {
      const std::int64_t heads = args.shape.heads.q_count, tokens = args.queries.count;
      for_each_item(team, args.shape.batch * heads * tokens, stop, [&](std::int64_t row) {
        attend_query<Element>(args, row / (heads * tokens), static_cast<int>(row / tokens % heads), row % tokens);
      });
    });
  }
}

}  // namespace distattn::kernels::reference
