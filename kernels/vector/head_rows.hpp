#pragma once
/// Rows of one head of an operation's arrays: the form that vector kernels take.

#include "kernels/arguments.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector {

/// From row `first` of a head on.
inline HeadRows<const void> rows_of_head(const ConstRows& rows, DType dtype, std::int64_t batch, std::int64_t head,
                                         std::int64_t first) {
  const std::int64_t bytes = rows.offset(batch, head, first) * static_cast<std::int64_t>(size_of(dtype));
  return {static_cast<const std::byte*>(rows.data) + bytes, rows.strides.token};
}
inline HeadRows<float> rows_of_head(const Rows& rows, std::int64_t batch, std::int64_t head, std::int64_t first) {
  return {static_cast<float*>(rows.data) + rows.offset(batch, head, first), rows.strides.token};
}

/// The keys of one head of a sequence, as queries with these ranges see them.
inline AttendPass pass_over(const KeySide& side, DType dtype, std::int64_t batch, std::int64_t head,
                            const std::int32_t* begin, const std::int32_t* end) {
  const auto rows = [&](const ConstRows& of) {
    const std::int64_t first = side.pages.pages == nullptr ? batch : 0;
    return KeyRows{rows_of_head(of, dtype, first, head, 0), side.pages, of.strides.batch};
  };
  return {.k = rows(side.k),
          .v = rows(side.v),
          .keys = side.keys.count,
          .positions = side.keys,
          .begin = begin,
          .end = end};
}

}  // namespace distattn::kernels::vector
