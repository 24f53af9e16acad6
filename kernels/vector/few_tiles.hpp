#pragma once
/// The order in which few queries take keys and values from memory, and what is asked for ahead of them.

#include <algorithm>
#include <span>

#include "kernels/vector/lane_products.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Keys whose products, or whose values, are taken for all heads before the next ones: where heads lie side by side, as
/// in a cache of keys that grows by tokens, memory is then read from one end to the other. Rows that are read several
/// at a time look to a processor like no sequence at all, so that these are as few as pay. Heads that lie apart have
/// longer tiles, each of which is a sequence by itself.
inline constexpr int few_key_tile = few_keys, few_value_tile = 8;

/// How many keys behind a tile memory is asked for. Tiles end where such many do, as pages do.
inline constexpr int few_ahead = 16;
static_assert(few_ahead % few_key_tile == 0 && few_ahead % few_value_tile == 0);

/// What follows a tile of keys, asked for while it is multiplied, from one end to the other and a line or two at a
/// time, since products would wait for more at once: far ahead into the second-level cache, because fewer lines may be
/// on their way to the first than memory takes to be busy, and of the next tile, which is there by then, into the
/// first.
class Ahead {
 public:
  static constexpr int line = 64;

  /// Asks for the same line again and again.
  explicit Ahead(const void* at) : at_(static_cast<const std::byte*>(at)), end_(at_) {}
  /// From the rows of key `far` and of key `near` on, which take `bytes` each.
  Ahead(const KeyRows& rows, DType dtype, std::int64_t bytes, int far, int near)
      : at_(static_cast<const std::byte*>(keys_from(rows, dtype, far).data)),
        end_(at_ + bytes),
        length_(bytes),
        gap_(rows.stride * static_cast<std::int64_t>(size_of(dtype)) - bytes),
        near_(static_cast<const std::byte*>(keys_from(rows, dtype, near).data) - at_) {}

  template <int Lines>
  DISTATTN_INLINE void ask() {
#pragma GCC unroll 8
    for (int i = 0; i < Lines; ++i) {
      __builtin_prefetch(at_ + i * line, 0, 2);
      __builtin_prefetch(at_ + near_ + i * line, 0, 3);
    }
    at_ += Lines * line;
    if (at_ < end_) return;
    at_ = end_ + gap_;
    end_ = at_ + length_;
    // Rows that begin a page are found, and a processor that follows a sequence as far as its page begins the next one.
    for (const int i : {0, 1}) __builtin_prefetch(at_ + rows_before_page * (length_ + gap_) + i * line, 0, 2);
  }

 private:
  static constexpr int rows_before_page = 2;
  const std::byte *at_, *end_;  ///< the end of a row
  std::int64_t length_ = 0, gap_ = 0;
  std::ptrdiff_t near_ = 0;
};

struct NothingAhead {
  template <int Lines>
  void ask() {}
};

/// Heads whose rows of keys, or of values, lie side by side: all, or each is alone.
inline bool side_by_side(std::span<const FewHead> heads, KeyRows AttendPass::*rows, int dim) {
  const auto* at = static_cast<const std::byte*>((heads.front().pass.*rows).data);
  const auto bytes = static_cast<std::ptrdiff_t>(size_of(heads.front().block.dtype)) * dim;
  // Every one is asked: several blocks of query heads may read one key head.
  return std::all_of(heads.begin() + 1, heads.end(),
                     [&](const FewHead& head) { return (head.pass.*rows).data == (at += bytes); });
}

/// Calls each(head's number, its rows, key, end, ahead) for tiles of the keys [first, last), which end at multiples of
/// `tile`, or of few_ahead if heads lie apart; more keys follow until `last_key`.
template <class Element, class Each>
DISTATTN_INLINE void for_each_tile(std::span<const FewHead> heads, KeyRows AttendPass::*rows, int dim, int tile,
                                   int first, int last, int last_key, Each each) {
  const bool together = side_by_side(heads, rows, dim);
  const DType dtype = heads.front().block.dtype;
  const int count = static_cast<int>(heads.size()), keys = together ? tile : few_ahead;
  const std::int64_t bytes = (together ? count : 1) * dim * static_cast<std::int64_t>(sizeof(Element));
  for (int key = first, end; key < last; key = end) {
    end = smaller((key / keys + 1) * keys, last);
    const int far = key / keys * keys + few_ahead, near = key / keys * keys + keys;
    for (int i = 0; i < count; i += together ? count : 1) {
      const KeyRows& from = heads[static_cast<std::size_t>(i)].pass.*rows;
      const HeadRows<const void> at = keys_from(from, dtype, key);
      HeadRows<const Element> row{static_cast<const Element*>(at.data), at.stride};
      Ahead ahead = far < last_key ? Ahead(from, dtype, bytes, far, near) : Ahead(at.data);
      for (int head = i; head < (together ? count : i + 1); ++head, row.data += dim) each(head, row, key, end, ahead);
    }
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
