#include "kernels/elementwise.hpp"

#include <algorithm>

#include "distattn/partial.hpp"
#include "kernels/element.hpp"
#include "kernels/elementwise_rows.hpp"
#include "kernels/parallel.hpp"
#include "kernels/scores.hpp"
#include "kernels/statistics.hpp"

namespace distattn::kernels {

namespace {

// Elements that one thread takes at a time: enough to make taking them cheap, few enough to share short lists.
constexpr std::int64_t grain = std::int64_t{1} << 15;

std::int64_t rows_a_piece(std::int64_t dim) {
  return std::max<std::int64_t>(1, grain / std::max<std::int64_t>(1, dim));
}

template <class Into, class From>
void convert_elements(const ConvertArgs& args, std::int64_t begin, std::int64_t end) {
  auto* into = static_cast<Into*>(args.into);
  const auto* from = static_cast<const From*>(args.from);
  for (std::int64_t i = begin; i < end; ++i) into[i] = rounded_to<Into>(from[i]);
}

// What rounding makes of a sum that is 0, as a share of the root of its squares.
constexpr float some_roundings = 0x1p-19f;

// What outputs of weights that were rounded to bf16 leave of a sum of 0, in roundings of fp32: no more, because of keys
// that share something by chance a sum is none of 0, and is needed.
constexpr float roundings_of_weights = 0x1p12f;

// Whether a sum is as small as rounding alone makes it. Where squares are lost or infinite, nobody knows.
bool is_rounding(float sum, float squares) {
  constexpr float least = 1e-24f, most = 1e24f;
  return least < squares && squares < most && sum * sum <= some_roundings * some_roundings * squares;
}

void settle_rows(const SettleArgs& args, std::int64_t begin, std::int64_t end, float roundings) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float sum = args.sums[row];
    if (sum == 0) continue;
    // Squares are of what this rank computed. Delta, a sum of the same terms but for the factor of scores, is about as
    // large as all of them, unless it cancels; its products do not.
    const float delta = args.delta[row], factor = factor_of<float>(args.shape.scores);
    const float all = delta * delta + (args.products == nullptr ? 0.f : args.products[row]);
    const float squares = (args.squares[row] + all * factor * factor) * (roundings * roundings);
    if (gradients_cancel(args.shape.scores) && is_rounding(sum, squares)) continue;
    const Heads& heads = args.shape.heads;
    const std::int64_t head = row / args.queries, b = head / heads.q_count, h = head % heads.q_count;
    const std::int64_t kv_head = b * heads.kv_count + heads.kv_of(static_cast<int>(h));
    const float* const shared = args.shared + kv_head * args.shape.head_dim;
    auto* const dq = static_cast<float*>(args.dq.data) + args.dq.offset(b, h, row % args.queries);
    for (int x = 0; x < args.shape.head_dim; ++x) {
      if (shared[x] != 0.f) dq[x] += sum * shared[x];
    }
  }
}

// into[x·into_stride] = or += from[x·from_stride]
template <class Into, class From>
void move_row(Into* into, std::int64_t into_stride, const From* from, std::int64_t from_stride, std::int64_t count,
              bool add) {
  if constexpr (std::is_floating_point_v<Into>) {
    if (add) {
      for (std::int64_t x = 0; x < count; ++x) into[x * into_stride] += rounded_to<Into>(from[x * from_stride]);
      return;
    }
  }
  if (into_stride == 1 && from_stride == 1) {
    if constexpr (std::is_same_v<Into, From>) {
      std::copy_n(from, count, into);  // compilers make one move of it
    } else {
      for (std::int64_t x = 0; x < count; ++x) into[x] = rounded_to<Into>(from[x]);
    }
  } else {
    for (std::int64_t x = 0; x < count; ++x) into[x * into_stride] = rounded_to<Into>(from[x * from_stride]);
  }
}

template <class Into, class From>
void rearrange_rows(const RearrangeArgs& args, std::int64_t begin, std::int64_t end) {
  const auto [batch, heads, tokens, dim] = args.shape;
  const auto& to = args.into_strides;
  const auto& of = args.from_strides;
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t b = row / (heads * tokens), h = row / tokens % heads, t = row % tokens;
    const std::int64_t count = std::min(tokens - t, end - row);
    auto* into = static_cast<Into*>(args.into) + b * to[0] + h * to[1] + t * to[2];
    const auto* from = static_cast<const From*>(args.from) + b * of[0] + h * of[1] + t * of[2];
    if (dim == 1) {
      move_row(into, to[2], from, of[2], count, args.add);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        move_row(into + i * to[2], to[3], from + i * of[2], of[3], dim, args.add);
      }
    }
    row += count;
  }
}

template <class Sum>
void differentiate_sink(const SinkGradientArgs& args, int head) {
  const auto logit = static_cast<double>(static_cast<const Sum*>(args.logits)[head]);
  double sum = 0;
  for (const SinkRows& rows : args.rows) sum += sink_gradient_of<Sum>(rows, head, logit);
  static_cast<Sum*>(args.gradients)[head] = static_cast<Sum>(sum);
}

void settle_all(std::span<const SettleArgs> operations, Team& team, const StopFlag& stop, float roundings) {
  const auto pieces = [](const SettleArgs& args) {
    return Pieces{args.shape.batch * args.shape.heads.q_count * args.queries, rows_a_piece(args.shape.head_dim)};
  };
  for_each_piece(team, operations, stop, pieces, [&](const SettleArgs& args, std::int64_t begin, std::int64_t end) {
    settle_rows(args, begin, end, roundings);
  });
}

}  // namespace

void merge(std::span<const MergeArgs> operations, Team& team, const StopFlag& stop) {
  const auto pieces = [](const MergeArgs& args) { return Pieces{args.rows, rows_a_piece(args.dim)}; };
  for_each_piece(team, operations, stop, pieces, [](const MergeArgs& args, std::int64_t begin, std::int64_t end) {
    with_accumulator(args.accumulator, [&]<class Sum>(Sum) {
      with_element(args.from_dtype, [&]<class From>(From) { merge_rows<Sum, From>(args, begin, end); });
    });
  });
}

void accumulate(std::span<const AccumulateArgs> operations, Team& team, const StopFlag& stop) {
  const auto pieces = [](const AccumulateArgs& args) { return Pieces{args.count, grain}; };
  for_each_piece(team, operations, stop, pieces, [](const AccumulateArgs& args, std::int64_t begin, std::int64_t end) {
    with_accumulator(args.accumulator, [&]<class Sum>(Sum) {
      with_element(args.from_dtype, [&]<class From>(From) {
        auto* into = static_cast<Sum*>(args.into);
        const auto* from = static_cast<const From*>(args.from);
        for (std::int64_t i = begin; i < end; ++i) into[i] += static_cast<Sum>(from[i]);
        for (std::int64_t i = begin; args.squares != nullptr && i < end; ++i) args.squares[i] += square_of(from[i]);
      });
    });
  });
}

void convert(std::span<const ConvertArgs> operations, Team& team, const StopFlag& stop) {
  const auto pieces = [](const ConvertArgs& args) { return Pieces{args.count, grain}; };
  for_each_piece(team, operations, stop, pieces, [](const ConvertArgs& args, std::int64_t begin, std::int64_t end) {
    with_element(args.into_dtype, [&]<class Into>(Into) {
      with_element(args.from_dtype, [&]<class From>(From) { convert_elements<Into, From>(args, begin, end); });
    });
  });
}

void delta(std::span<const DeltaArgs> operations, Team& team, const StopFlag& stop) {
  const auto pieces = [](const DeltaArgs& args) { return Pieces{args.rows, rows_a_piece(args.dim)}; };
  for_each_piece(team, operations, stop, pieces, [](const DeltaArgs& args, std::int64_t begin, std::int64_t end) {
    with_element(args.dtype, [&]<class From>(From) {
      with_accumulator(args.accumulator, [&]<class Sum>(Sum) { delta_rows<From, Sum>(args, begin, end); });
    });
  });
}

void clear_sums(const AttendBackwardArgs& args) {
  if (args.carry) return;
  const std::int64_t rows = args.shape.batch * args.shape.heads.q_count * args.queries.count;
  if (args.sums != nullptr) std::fill_n(args.sums, rows, 0.f);
  if (args.squares != nullptr) std::fill_n(args.squares, rows, 0.f);
}

void share_nothing(std::span<const ShareArgs> operations, Team&, const StopFlag&) {
  for (const ShareArgs& args : operations) std::fill_n(args.into, args.batch * args.kv_count * args.head_dim, 0.f);
}

void settle(std::span<const SettleArgs> operations, Team& team, const StopFlag& stop) {
  settle_all(operations, team, stop, 1);
}

void settle_rounded(std::span<const SettleArgs> operations, Team& team, const StopFlag& stop) {
  settle_all(operations, team, stop, roundings_of_weights);
}

void rearrange(std::span<const RearrangeArgs> operations, Team& team, const StopFlag& stop) {
  for (const auto& args : operations) {
    DISTATTN_EXPECT(!args.add || args.into_dtype == accumulator_of(args.into_dtype));
  }
  const auto pieces = [](const RearrangeArgs& args) {
    return Pieces{args.shape[0] * args.shape[1] * args.shape[2], rows_a_piece(args.shape[3])};
  };
  for_each_piece(team, operations, stop, pieces, [](const RearrangeArgs& args, std::int64_t begin, std::int64_t end) {
    with_element(args.into_dtype, [&]<class Into>(Into) {
      with_element(args.from_dtype, [&]<class From>(From) { rearrange_rows<Into, From>(args, begin, end); });
    });
  });
}

void merge_sinks(std::span<const SinkArgs> operations, Team& team, const StopFlag& stop) {
  const auto pieces = [](const SinkArgs& args) {
    return Pieces{args.batch * args.heads * args.tokens, rows_a_piece(args.dim)};
  };
  for_each_piece(team, operations, stop, pieces, [](const SinkArgs& args, std::int64_t begin, std::int64_t end) {
    with_accumulator(args.accumulator, [&]<class Sum>(Sum) { merge_sink_rows<Sum>(args, begin, end); });
  });
}

void differentiate_sinks(std::span<const SinkGradientArgs> operations, Team& team, const StopFlag& stop) {
  for (const SinkGradientArgs& args : operations) {
    for_each_item(team, args.heads, stop, [&](std::int64_t head) {
      with_accumulator(args.accumulator,
                       [&]<class Sum>(Sum) { differentiate_sink<Sum>(args, static_cast<int>(head)); });
    });
  }
}

}  // namespace distattn::kernels
