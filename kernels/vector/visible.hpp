#pragma once
/// Which keys queries see, at a glance: one range of keys for each query.

#include "kernels/vector/tile_shape.hpp"

namespace distattn::kernels::vector::DISTATTN_ISA {

/// All ones in lanes whose range [begin, end) does not hold the key. (Selecting by comparison is miscompiled by clang
/// 14 for AVX-512; signs do the same.)
DISTATTN_INLINE Bits outside(Bits begin, Bits end, Bits key) { return ((key - begin) | (end - 1 - key)) >> 31; }

DISTATTN_INLINE Bits load_bits(const std::int32_t* from) { return Bits(from, stdx::vector_aligned); }

inline constexpr int none = 0x7fffffff;

/// What some queries see: no key outside [first, last), each of them all of [all_first, all_last).
struct SeenKeys {
  int first = none, last = 0;
  int all_first = 0, all_last = none;

  /// Of keys [from, to).
  Range within(int from, int to) const { return {bigger(from, first), smaller(to, last)}; }
  bool all(int key, int count) const { return all_first <= key && key + count <= all_last; }
  bool some(int key, int count) const { return first < key + count && last > key; }
  /// Of a panel of keys from `key` on, the vectors with keys that are seen.
  Range seen_vectors(int key) const {
    if (!some(key, panel_width)) return {};
    return {bigger(0, first - key) / lanes, (smaller(panel_width, last - key) + lanes - 1) / lanes};
  }
};

/// Of keys `among`.
inline SeenKeys seen_keys(const std::int32_t* begin, const std::int32_t* end, int queries, Range among) {
  SeenKeys seen;
  for (int i = 0; i < queries; ++i) {
    const int from = bigger(begin[i], among.from), to = smaller(end[i], among.to);
    if (from < to) seen.first = smaller(seen.first, from);
    if (from < to) seen.last = bigger(seen.last, to);
    seen.all_first = bigger(seen.all_first, begin[i]);
    seen.all_last = smaller(seen.all_last, end[i]);
  }
  return seen;
}

/// From the first to the last of some groups of queries that sees some of the `count` keys from `key` on.
inline Range groups_seeing(const SeenKeys* groups, int number, int key, int count) {
  Range range{0, number};
  while (!range.empty() && !groups[range.from].some(key, count)) ++range.from;
  while (!range.empty() && !groups[range.to - 1].some(key, count)) --range.to;
  return range;
}

/// Whether queries that see keys between `all`'s first and last see so few of them that many blocks of keys have none,
/// as the leaves of a tree do.
inline bool see_few(const SeenKeys& all, const std::int32_t* begin, const std::int32_t* end, int queries) {
  if (all.last - all.first <= key_block) return false;
  std::int64_t seen = 0, seeing = 0;
  for (int i = 0; i < queries; ++i) {
    seen += end[i] - begin[i];
    seeing += begin[i] < end[i] ? 1 : 0;
  }
  return 4 * seen < seeing * (all.last - all.first);
}

/// Query i sees the keys begin[i] ≤ key < end[i].
struct KeyRanges {
  const std::int32_t* begin = nullptr;
  const std::int32_t* end = nullptr;

  bool sees(int query, int key) const { return begin[query] <= key && key < end[query]; }
};

/// What the queries of a panel see of some keys. The ranges themselves stay where they are.
struct PanelKeys : KeyRanges {
  SeenKeys panel;
  SeenKeys vector[tile_vectors];         // by queries of a vector
  SeenKeys sum[panel_width / sum_rows];  // by queries of a tile of sums

  PanelKeys() = default;
  PanelKeys(const std::int32_t* begins, const std::int32_t* ends, Range among)
      : KeyRanges{begins, ends}, panel(seen_keys(begins, ends, panel_width, among)) {
    for (int i = 0; i < panel_width; i += lanes) vector[i / lanes] = seen_keys(begin + i, end + i, lanes, among);
    for (int i = 0; i < panel_width; i += sum_rows) sum[i / sum_rows] = seen_keys(begin + i, end + i, sum_rows, among);
  }

  DISTATTN_INLINE Bits hidden(int v, int key) const {
    return outside(load_bits(begin + v * lanes), load_bits(end + v * lanes), Bits(key));
  }
  /// From the first to the last vector of queries that sees some of the `count` keys from `key` on.
  Range seeing(int key, int count) const { return groups_seeing(vector, tile_vectors, key, count); }
};

/// Makes scores of vector v of a panel −∞ for the keys of a tile that a query does not see. Returns `top`, raised to
/// the largest of the others.
DISTATTN_INLINE Vector hide(const PanelKeys& keys, int v, int key, float* scores, Vector top) {
  for (int i = 0; i < tile_rows; ++i) {
    const Vector score = replace(keys.hidden(v, key + i), load(scores + i * panel_width), minus_infinity);
    store(scores + i * panel_width, score);
    top = larger(score, top);
  }
  return top;
}

/// Calls tile.operator()<Vectors>(from) for the vectors `some` of a tile of scores. The other vectors are filled with
/// `nothing`. Unless `all` of the tile is seen, the caller then hides what is not: a second look at the few tiles that
/// masks cut, which code for each kind of tile would be twice as much without.
template <int Stride, class Tile>
DISTATTN_INLINE void visit_tile(bool all, Range some, float* into, float nothing, Tile tile) {
  if (all) return tile.template operator()<tile_vectors>(0);
  for (int i = 0; i < tile_rows; ++i) {
    for (int v = 0; v < tile_vectors; ++v) {
      if (v < some.from || v >= some.to) store(into + i * Stride + v * lanes, nothing);
    }
  }
  if (some.empty()) return;
  by_count<tile_vectors>(some.to - some.from, [&]<int Vectors>() { tile.template operator()<Vectors>(some.from); });
}

}  // namespace distattn::kernels::vector::DISTATTN_ISA
