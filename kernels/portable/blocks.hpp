#pragma once
/// What both passes cut operations into, and what a block of queries sees.

#include <cstddef>
#include <span>

#include "kernels/arguments.hpp"
#include "kernels/portable/tiles.hpp"
#include "kernels/scores.hpp"

namespace distattn::kernels::portable {

/// How large tiles are, and how many values a row of them has.
struct TileSizes {
  int queries = 0, keys = 0;
  int head_dim = 0, value_dim = 0;  ///< of the operation
  int head_columns = 0, value_columns = 0;
  bool keeps_slopes = false;  ///< of maps of scores, for pairs whose scores have biases too
};

/// Rows and columns of the largest tiles.
inline constexpr int largest_tile = 64;

/// Of tiles for a shape, with at most `queries` rows of a key head in an operation. `largest` is 32 or 64.
constexpr TileSizes tile_sizes(const TileShape& shape, std::int64_t queries, int largest = largest_tile) {
  const bool are_wide = shape.head_dim + shape.value_dim > 1024;
  const int most = are_wide ? 32 : largest;
  return {.queries = queries <= 32 ? 32 : most,
          .keys = most,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim,
          .head_columns = padded(shape.head_dim, column_step),
          .value_columns = padded(shape.value_dim, column_step),
          .keeps_slopes = shape.alibi_slopes != nullptr && !is_linear(shape.scores)};
}

/// Hands out arrays of a team's scratch memory; of none if it only counts.
class Carver {
 public:
  DISTATTN_HOST_DEVICE explicit Carver(std::byte* memory) : memory_(memory) {}

  template <class T>
  DISTATTN_HOST_DEVICE T* take(std::ptrdiff_t count) {
    std::byte* const begin = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count * static_cast<std::ptrdiff_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(begin);
  }
  DISTATTN_HOST_DEVICE std::size_t used() const { return static_cast<std::size_t>(used_); }

 private:
  std::byte* memory_;
  std::ptrdiff_t used_ = 0;
};

/// Query heads that read one key head, their queries one after the other: rows of which blocks are made.
struct HeadRows {
  std::int64_t batch = 0;
  int kv = 0, first_head = 0, heads = 0;
  std::int64_t tokens = 0;  ///< of each head
  int q_count = 0;          ///< heads of the operation

  DISTATTN_HOST_DEVICE HeadRows(const TileShape& shape, const Run& queries, std::int64_t of_batch, int of_kv)
      : batch(of_batch), kv(of_kv), tokens(queries.count), q_count(shape.heads.q_count) {
    for (int h = 0; h < shape.heads.q_count; ++h) {
      if (shape.heads.kv_of(h) != kv) continue;
      if (heads++ == 0) first_head = h;
    }
  }

  DISTATTN_HOST_DEVICE std::int64_t count() const { return heads * tokens; }
  DISTATTN_HOST_DEVICE int head_of(std::int64_t row) const { return first_head + static_cast<int>(row / tokens); }
  DISTATTN_HOST_DEVICE std::int64_t token_of(std::int64_t row) const { return row % tokens; }
  /// Of its statistics.
  DISTATTN_HOST_DEVICE std::int64_t statistic_of(std::int64_t row) const {
    return (batch * q_count + head_of(row)) * tokens + token_of(row);
  }
  DISTATTN_HOST_DEVICE TensorRows of(const ConstRows& rows, DType dtype, std::int64_t first) const {
    const std::int64_t begin = batch * rows.strides.batch + first_head * rows.strides.head;
    return {static_cast<const std::byte*>(rows.data) + begin * static_cast<std::int64_t>(size_of(dtype)),
            rows.strides.head,
            rows.strides.token,
            tokens,
            first,
            dtype};
  }
  template <class Real>
  DISTATTN_HOST_DEVICE Real* row_of(const Rows& rows, std::int64_t row) const {
    return static_cast<Real*>(rows.data) + batch * rows.strides.batch + head_of(row) * rows.strides.head +
           token_of(row) * rows.strides.token;
  }
};

/// Rows of a key head from `first` on, of k or v of a side, as far as they lie one behind the other
/// (PageTable::end_of_run).
DISTATTN_HOST_DEVICE inline TensorRows key_rows(const KeySide& side, const ConstRows& rows, DType dtype,
                                                std::int64_t batch, int kv, std::int64_t first) {
  const std::int64_t begin = side.offset(rows, batch, kv, first) * static_cast<std::int64_t>(size_of(dtype));
  return {static_cast<const std::byte*>(rows.data) + begin, 0, rows.strides.token, std::int64_t{1} << 62, 0, dtype};
}

/// Which keys the rows of a block see through one band: those with indices [begin, end) of a key segment.
struct Sight {
  std::int64_t* begin;
  std::int64_t* end;

  Sight() = default;
  DISTATTN_HOST_DEVICE Sight(Carver& carver, int rows)
      : begin(carver.take<std::int64_t>(rows)), end(carver.take<std::int64_t>(rows)) {}

  DISTATTN_HOST_DEVICE void set(int row, const IndexRange& seen) const {
    begin[row] = seen.empty() ? 0 : seen.begin;
    end[row] = seen.empty() ? 0 : seen.end;
  }
  DISTATTN_HOST_DEVICE bool holds(int row, std::int64_t key) const { return begin[row] <= key && key < end[row]; }

  /// From the first key that one of `rows` rows sees to the last.
  DISTATTN_HOST_DEVICE IndexRange hull(int rows) const {
    IndexRange all{std::int64_t{1} << 62, 0};
    for (int row = 0; row < rows; ++row) {
      if (end[row] <= begin[row]) continue;
      if (begin[row] < all.begin) all.begin = begin[row];
      if (end[row] > all.end) all.end = end[row];
    }
    return all;
  }
  /// Whether each of `rows` rows sees all of the keys.
  DISTATTN_HOST_DEVICE bool all(int rows, const IndexRange& keys) const {
    for (int row = 0; row < rows; ++row) {
      if (begin[row] > keys.begin || end[row] < keys.end) return false;
    }
    return true;
  }
};

/// The keys that `row` sees, but none where it has nothing to give.
template <class Real>
DISTATTN_HOST_DEVICE IndexRange seen_keys(const HeadRows& rows, std::int64_t row, const Run& queries, const Band& band,
                                          const Run& keys, const Real* lse) {
  if (lse != nullptr && lse[rows.statistic_of(row)] == -INFINITY) return {0, 0};
  return band_keys(band, queries.at(rows.token_of(row)), keys);
}

/// Positions of the rows [first, first + count), or of all where they belong to several heads: what may be seen.
DISTATTN_HOST_DEVICE inline Run positions_of(const HeadRows& rows, const Run& queries, std::int64_t first, int count) {
  const std::int64_t token = rows.token_of(first);
  if (token + count > rows.tokens) return queries;
  return {queries.at(token), count, queries.stride};
}

/// A block of rows of one operation, or of keys where those are what a team owns.
struct Item {
  std::int32_t owner;  ///< operation, or column of the plan
  std::int32_t batch, kv;
  std::int64_t first;
};

}  // namespace distattn::kernels::portable
