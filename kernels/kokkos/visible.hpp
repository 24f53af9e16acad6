#pragma once
/// Which keys the queries of a panel see, at a glance: one range of keys for each query.

#include "kernels/kokkos/tile_shape.hpp"

namespace distattn::kernels::kokkos::DISTATTN_ISA {

/// All ones in lanes whose range [begin, end) does not hold the key. (Selecting by comparison is miscompiled by clang 14
/// for AVX-512; signs do the same.)
DISTATTN_INLINE Bits outside(Bits begin, Bits end, Bits key) { return ((key - begin) | (end - 1 - key)) >> 31; }

DISTATTN_INLINE Bits load_bits(const std::int32_t* from) { return Bits(from, stdx::vector_aligned); }

inline constexpr int none = 0x7fffffff;

/// Vectors of a panel, half-open.
struct VectorRange {
  int from = 0, to = 0;
};

/// What some queries see: no key outside [first, last), each of them all of [all_first, all_last).
struct SeenKeys {
  int first = none, last = 0;
  int all_first = 0, all_last = none;

  bool all(int key, int count) const { return all_first <= key && key + count <= all_last; }
  bool some(int key, int count) const { return first < key + count && last > key; }
  /// Of `tile_vectors` vectors of keys from `key` on, those with keys that are seen.
  VectorRange seeing(int key) const {
    if (!some(key, panel_width)) return {};
    return {bigger(0, first - key) / lanes, (smaller(panel_width, last - key) + lanes - 1) / lanes};
  }
};

inline SeenKeys seen_keys(const std::int32_t* begin, const std::int32_t* end, int queries) {
  SeenKeys seen;
  for (int i = 0; i < queries; ++i) {
    if (begin[i] < end[i]) seen.first = smaller(seen.first, begin[i]);
    seen.last = bigger(seen.last, end[i]);
    seen.all_first = bigger(seen.all_first, begin[i]);
    seen.all_last = smaller(seen.all_last, end[i]);
  }
  return seen;
}

/// Summary of the ranges of one panel; the ranges themselves stay where they are.
struct PanelKeys {
  const std::int32_t* begin;
  const std::int32_t* end;
  int first, last;                                            // no query sees a key outside [first, last)
  int all_first, all_last;                                    // every query sees all of [all_first, all_last)
  int vector_first[tile_vectors], vector_last[tile_vectors];  // first, last of one vector of queries

  DISTATTN_INLINE Bits hidden(int vector, int key) const {
    return outside(load_bits(begin + vector * lanes), load_bits(end + vector * lanes), key);
  }
  bool see_all(int key, int count) const { return all_first <= key && key + count <= all_last; }
  bool sees_some(int vector, int key, int count) const {
    return vector_first[vector] < key + count && vector_last[vector] > key;
  }
  /// From the first to the last vector that sees some of the `count` keys from `key` on.
  VectorRange seeing(int key, int count) const {
    VectorRange range{0, tile_vectors};
    while (range.from < range.to && !sees_some(range.from, key, count)) ++range.from;
    while (range.to > range.from && !sees_some(range.to - 1, key, count)) --range.to;
    return range;
  }
};

inline PanelKeys panel_keys(const std::int32_t* begin, const std::int32_t* end) {
  PanelKeys keys{begin, end, none, 0, 0, none, {}, {}};
  for (int v = 0; v < tile_vectors; ++v) {
    int first = none, last = 0;
    for (int i = v * lanes; i < (v + 1) * lanes; ++i) {
      const bool empty = end[i] <= begin[i];
      first = smaller(first, empty ? none : begin[i]);
      last = bigger(last, empty ? 0 : end[i]);
      keys.all_first = bigger(keys.all_first, begin[i]);
      keys.all_last = smaller(keys.all_last, end[i]);
    }
    keys.vector_first[v] = first;
    keys.vector_last[v] = last;
    keys.first = smaller(keys.first, first);
    keys.last = bigger(keys.last, last);
  }
  return keys;
}

/// Keys [first, last) that the same vectors of a panel see some of.
struct KeyPart {
  int first, last;
  VectorRange vectors;
  bool begins[tile_vectors];  ///< the vector is in no part before
};

/// In the order of the keys.
struct KeyParts {
  KeyPart part[2 * tile_vectors];
  int count = 0;
};

/// Cuts keys [first, last) where a vector begins or ceases to see them. Every vector that sees any is in some part.
inline KeyParts key_parts(const PanelKeys& keys, int first, int last) {
  KeyParts parts;
  bool begun[tile_vectors] = {};
  for (int from = first, to; from < last; from = to) {
    to = last;
    for (int v = 0; v < tile_vectors; ++v) {
      if (keys.vector_first[v] > from) to = smaller(to, keys.vector_first[v]);
      if (keys.vector_last[v] > from) to = smaller(to, keys.vector_last[v]);
    }
    KeyPart part{from, to, keys.seeing(from, to - from), {}};
    if (part.vectors.from == part.vectors.to) continue;
    for (int v = part.vectors.from; v < part.vectors.to; ++v) {
      part.begins[v] = !begun[v];
      begun[v] = true;
    }
    parts.part[parts.count++] = part;
  }
  return parts;
}

/// Calls call.operator()<Vectors>() for as many vectors as the range, which is not empty, has.
template <class Call>
DISTATTN_INLINE void by_vectors(VectorRange range, Call call) {
  static_assert(tile_vectors == 3);
  switch (range.to - range.from) {
    case 3:
      return call.template operator()<3>();
    case 2:
      return call.template operator()<2>();
    default:
      return call.template operator()<1>();
  }
}

/// Calls tile.operator()<Vectors, Masked>(from) for the vectors `some` of a tile of scores, masked unless `all` of it is
/// seen. The other vectors are filled with `nothing`.
template <int Stride, class Tile>
DISTATTN_INLINE void visit_tile(bool all, VectorRange some, float* scores, float nothing, Tile tile) {
  if (all) return tile.template operator()<tile_vectors, false>(0);
  for (int i = 0; i < tile_rows; ++i) {
    for (int v = 0; v < tile_vectors; ++v) {
      if (v < some.from || v >= some.to) store(scores + i * Stride + v * lanes, nothing);
    }
  }
  if (some.from == some.to) return;
  by_vectors(some, [&]<int Vectors>() { tile.template operator()<Vectors, true>(some.from); });
}

}  // namespace distattn::kernels::kokkos::DISTATTN_ISA
