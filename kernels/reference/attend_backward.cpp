#include <algorithm>

#include "kernels/element.hpp"
#include "kernels/parallel.hpp"
#include "kernels/reference/loops.hpp"
#include "kernels/reference/reference.hpp"

namespace distattn::kernels::reference {

namespace {

// One query against one key segment: spec §5's formulas, line by line.
template <class Element>
void attend_backward_query(const AttendBackwardArgs& args, const KeySide& side, std::int64_t b, int h, std::int64_t i) {
  using Sum = AccumulatorOf<Element>;
  const TileShape& shape = args.shape;
  const std::int64_t row = (b * shape.heads.q_count + h) * args.queries.count + i;
  const Sum lse = static_cast<const Sum*>(args.lse)[row];
  if (lse == -INFINITY) return;
  const Sum delta = static_cast<const Sum*>(args.delta)[row];
  const auto* q = row_of<Element>(args.q, b, h, i);
  const auto* d_o = row_of<Element>(args.d_o, b, h, i);
  auto* dq = row_of<Sum>(args.dq, b, h, i);

  const int kv = shape.heads.kv_of(h);
  for (const Band& band : side.bands) {
    const IndexRange visible = band_keys(band, args.queries.at(i), side.keys);
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
      const auto* k = row_of<Element>(side.k, b, kv, j);
      const auto* v = row_of<Element>(side.v, b, kv, j);
      const Sum scale = static_cast<Sum>(shape.scale);
      const Sum p = std::exp(scale * dot<Sum>(q, k, shape.head_dim) - lse);
      const Sum ds = p * (dot<Sum>(d_o, v, shape.value_dim) - delta);
      add_scaled(row_of<Sum>(side.dv, b, kv, j), p, d_o, shape.value_dim);
      add_scaled(dq, scale * ds, k, shape.head_dim);
      add_scaled(row_of<Sum>(side.dk, b, kv, j), scale * ds, q, shape.head_dim);
    }
  }
}

template <class Sum>
void clear_rows(const Rows& rows, std::int64_t b, int head, std::int64_t count, int dim) {
  for (std::int64_t i = 0; i < count; ++i) std::fill_n(row_of<Sum>(rows, b, head, i), dim, Sum(0));
}

// All operations' share of one key head: nothing that another key head's share writes.
template <class Element>
void attend_backward_head(const AttendBackwardArgs& args, std::int64_t b, int kv) {
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
      for (std::int64_t i = 0; i < args.queries.count; ++i) attend_backward_query<Element>(args, side, b, h, i);
    }
  }
}

}  // namespace

void attend_backward(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop) {
  for (const auto& args : operations) {
    with_element(args.shape.dtype, [&]<class Element>(Element) {
      const int heads = args.shape.heads.kv_count;
      for_each_item(team, args.shape.batch * heads, stop, [&](std::int64_t item) {
        attend_backward_head<Element>(args, item / heads, static_cast<int>(item % heads));
      });
    });
  }
}

}  // namespace distattn::kernels::reference
