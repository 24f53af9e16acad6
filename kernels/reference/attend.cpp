#include <vector>

#include "distattn/partial.hpp"
#include "kernels/element.hpp"
#include "kernels/parallel.hpp"
#include "kernels/reference/loops.hpp"
#include "kernels/reference/reference.hpp"

namespace distattn::kernels::reference {

namespace {

// The partial of one query over the keys that one band shows it: softmax in two passes.
template <class Element, class Sum>
Sum attend_keys(const TileShape& shape, const Element* q, const KeySide& side, std::int64_t b, int kv,
                IndexRange visible, std::vector<Sum>& scores, std::vector<Sum>& o) {
  scores.clear();
  Sum top = -INFINITY;
  for (std::int64_t j = visible.begin; j < visible.end; ++j) {
    const Sum score = static_cast<Sum>(shape.scale) * dot<Sum>(q, row_of<Element>(side.k, b, kv, j), shape.head_dim);
    scores.push_back(score);
    if (score > top || score != score) top = score;
  }
  std::fill(o.begin(), o.end(), Sum(0));
  if (top == -INFINITY) return top;
  Sum sum = 0;
  for (std::int64_t j = visible.begin; j < visible.end; ++j) {
    const Sum p = std::exp(scores[static_cast<std::size_t>(j - visible.begin)] - top);
    sum += p;
    add_scaled(o.data(), p, row_of<Element>(side.v, b, kv, j), shape.value_dim);
  }
  for (Sum& value : o) value /= sum;
  return top + std::log(sum);
}

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
  thread_local std::vector<Sum> scores, part;
  part.resize(static_cast<std::size_t>(shape.value_dim));
  for (const KeySide& side : args.keys) {
    for (const Band& band : side.bands) {
      const IndexRange visible = band_keys(band, args.queries.at(i), side.keys);
      if (visible.empty()) continue;
      const Sum part_lse = attend_keys(shape, q, side, b, shape.heads.kv_of(h), visible, scores, part);
      const auto weights = merge_weights(*lse, part_lse);
      for (int x = 0; x < shape.value_dim; ++x) {
        o[x] = weights.scale_a * o[x] + weights.scale_b * part[static_cast<std::size_t>(x)];
      }
      *lse = weights.lse;
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
