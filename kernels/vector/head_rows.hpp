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

}  // namespace distattn::kernels::vector
