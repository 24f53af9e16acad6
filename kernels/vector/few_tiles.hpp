#pragma once
/// The order in which few queries take keys and values from memory, and what is asked for ahead of them.

#include <span>

#include "kernels/vector/lane_products.hpp"
#include "kernels/vector/packing.hpp"
#include "kernels/vector/vector_kernels.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// Keys that are multiplied for all heads before the next ones: where heads lie side by side, as in a cache of keys
/// that grows by tokens, memory is then read from one end to the other. The next ones are asked for meanwhile.
inline constexpr int few_tile = 16;
static_assert(few_tile % few_keys == 0);

/// What follows a tile of keys, of which each head asks for its share while it multiplies: a few lines with each key,
/// since products would wait for more at once, and one line behind the other, however heads share them: memory is then
/// twice as fast. Two threads that find their pages only when they get there wait a fifth of the time.
class Ahead {
 public:
  static constexpr int line = 64;

  /// Asks for the same line again and again.
  explicit Ahead(const void* at) : at_(static_cast<const std::byte*>(at)), end_(at_) {}
  /// The share of head `number` of `heads`, whose rows lie side by side, of what follows the tile of `key`.
  Ahead(const KeyRows& first_head, DType dtype, int dim, int number, int heads, int key)
      : length_(heads * dim * static_cast<std::int64_t>(size_of(dtype))) {
    const int before = number * few_tile;  // rows of a head that others ask for
    const HeadRows<const void> tile = keys_from(first_head, dtype, (key / few_tile + 1) * few_tile);
    const HeadRows<const void> row = rows_from(tile, dtype, before / heads);
    end_ = static_cast<const std::byte*>(row.data) + length_;
    at_ = end_ - length_ + before % heads * (length_ / heads);
    gap_ = row.stride * static_cast<std::int64_t>(size_of(dtype)) - length_;
  }

  template <int Lines>
  DISTATTN_INLINE void ask() {
#pragma GCC unroll 8
    for (int i = 0; i < Lines; ++i) __builtin_prefetch(at_ + i * line, 0, 3);
    at_ += Lines * line;
    if (at_ < end_) return;
    at_ = end_ + gap_;
    end_ = at_ + length_;
    __builtin_prefetch(at_ + few_tile * (length_ + gap_), 0, 3);  // finds the page of a row that is asked for later
  }

 private:
  const std::byte *at_, *end_;  ///< the end of a row
  std::int64_t length_ = 0, gap_ = 0;
};

/// Heads whose rows of keys, or of values, lie side by side: all, or each is alone.
inline bool side_by_side(std::span<const FewHead> heads, KeyRows AttendPass::*rows, int dim) {
  const auto at = [&](const FewHead& head) { return static_cast<const std::byte*>((head.pass.*rows).data); };
  const auto bytes = static_cast<std::ptrdiff_t>(size_of(heads.front().block.dtype)) * dim;
  return at(heads.back()) - at(heads.front()) == (std::ssize(heads) - 1) * bytes;
}

/// Calls each(head, key, end, ahead) for tiles of the keys [first, last), which end at multiples of few_tile, as pages
/// do; more keys follow until `last_key`.
template <class Each>
DISTATTN_INLINE void for_each_tile(std::span<const FewHead> heads, KeyRows AttendPass::*rows, int dim, int first,
                                   int last, int last_key, Each each) {
  const bool together = side_by_side(heads, rows, dim);
  const int count = together ? static_cast<int>(heads.size()) : 1;
  for (int key = first, end; key < last; key = end) {
    end = smaller((key / few_tile + 1) * few_tile, last);
    for (int i = 0; i < static_cast<int>(heads.size()); ++i) {
      const FewHead& head = heads[static_cast<std::size_t>(i)];
      const FewHead& from = together ? heads.front() : head;
      const bool more = (key / few_tile + 1) * few_tile < last_key;
      each(head, key, end,
           more ? Ahead(from.pass.*rows, head.block.dtype, dim, together ? i : 0, count, key)
                : Ahead((head.pass.*rows).data));
    }
  }
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
