#pragma once
/// What the places of a query and a key do to their score and its weight: linear biases and dropout. Plain loops, for
/// problems that have them.

#include "kernels/dropout.hpp"
#include "kernels/portable/blocks.hpp"

namespace distattn::kernels::portable {

/// The queries and keys of a tile. Row i of a block and key j stand at values[i·query_step + j·key_step].
struct Pairs {
  const TileShape& shape;
  const HeadRows& rows;
  const Run& queries;  ///< of the operation
  std::int64_t first;  ///< row of the block
  int count;           ///< of rows
  Run keys;            ///< of the tile
  std::ptrdiff_t query_step, key_step;

  DISTATTN_HOST_DEVICE std::int64_t position(int i) const { return queries.at(rows.token_of(first + i)); }
};

/// Adds the linear bias of every pair to its score.
template <class Real>
DISTATTN_HOST_DEVICE void add_biases(Place place, const Pairs& pairs, Real* scores) {
  for (int i = place.rank; i < pairs.count; i += place.size) {
    const auto slope = static_cast<Real>(pairs.shape.alibi_slopes[pairs.rows.head_of(pairs.first + i)]);
    const std::int64_t query = pairs.position(i);
    Real* at = scores + i * pairs.query_step;
    for (std::int64_t j = 0; j < pairs.keys.count; ++j, at += pairs.key_step) {
      *at += slope * static_cast<Real>(pairs.keys.at(j) - query);
    }
  }
}

/// Multiplies what belongs to a pair by what dropout makes of a weight of 1. Several queries draw at once for four
/// keys.
template <class Tiles, class Real>
DISTATTN_HOST_DEVICE void drop(const Tiles& tiles, Place place, const Pairs& pairs, Real* values) {
  constexpr int most = Tiles::queries_drawn;
  const int first_head = pairs.rows.head_of(pairs.first);
  const HeadDropout dropout = head_dropout(pairs.shape, pairs.rows.batch, first_head);
  const auto kept = static_cast<Real>(dropout.kept);
  std::uint32_t queries[most] = {}, heads[most] = {}, words[4 * most];
  for (int first = place.rank * most; first < pairs.count; first += place.size * most) {
    const int count = pairs.count - first < most ? pairs.count - first : most;
    for (int i = 0; i < count; ++i) {
      queries[i] = static_cast<std::uint32_t>(pairs.position(first + i));
      heads[i] = dropout.head + static_cast<std::uint32_t>(pairs.rows.head_of(pairs.first + first + i) - first_head);
    }
    std::int64_t drawn = -1;  // the four keys that words are for
    Real* at = values + first * pairs.query_step;
    for (std::int64_t j = 0; j < pairs.keys.count; ++j, at += pairs.key_step) {
      const std::int64_t key = pairs.keys.at(j), four = key >> 2;
      if (four != drawn) {
        tiles.draw({queries, heads, static_cast<std::uint32_t>(four), dropout.offset, dropout.key0, dropout.key1},
                   words);
      }
      drawn = four;
      const std::uint32_t* const own = words + (key & 3) * most;
      for (int i = 0; i < count; ++i) at[i * pairs.query_step] *= dropout.keeps(own[i]) ? kept : Real(0);
    }
  }
}

}  // namespace distattn::kernels::portable
