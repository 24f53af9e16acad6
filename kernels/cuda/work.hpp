#pragma once
/// What the thread blocks of one launch compute: lists made on the host, walked by the kernels.
///
/// A block owns some rows of one segment and visits columns of others: queries that visit keys, or keys that visit
/// queries. The mask is settled here. A kernel sees stretches of tiles that are visible throughout, and tiles with
/// the few cuts that limit them; it never looks at what is invisible.

#include <cstdint>
#include <span>
#include <vector>

#include "distattn/band.hpp"
#include "distattn/types.hpp"

namespace distattn::kernels::cuda {

/// Rows that a block owns, and columns that it visits at a time.
struct TileSize {
  int rows = 0, columns = 0;
  int heads = 1;  ///< query heads of one key head, of each of which a block owns as many rows
};

/// Columns begin … end-1 of the segment `other`, in tiles that start at multiples of TileSize::columns. Of every tile
/// of the stretch cuts[first_cut … last_cut-1] show parts; without cuts every pair is visible.
struct Visit {
  std::int32_t other = 0;
  std::int32_t begin = 0, end = 0;
  std::int32_t first_cut = 0, last_cut = 0;
};

/// A part of a tile that is visible, as what of a band lies in two segments: rows first_row … last_row-1 see columns
/// from max(first_column, row + from) to before min(last_column, row + to). Rows and columns are counted in their
/// segments, in 32 bits and without strides, so that kernels neither widen nor divide.
struct alignas(16) Cut {
  std::int32_t first_row = 0, last_row = 0;
  std::int32_t first_column = 0, last_column = 0;
  std::int32_t from = 0, to = 0;

  /// The columns that a row sees, counted from `column`; none if end ≤ begin.
  struct Range {
    std::int32_t begin, end;
  };
  DISTATTN_HOST_DEVICE constexpr Range seen_from(std::int32_t row, std::int32_t column) const {
    if (row < first_row || row >= last_row) return {0, 0};
    const std::int32_t begin = row + from, end = row + to;
    return {(begin > first_column ? begin : first_column) - column, (end < last_column ? end : last_column) - column};
  }
  friend bool operator==(const Cut&, const Cut&) = default;
};

/// Rows row_begin … of the segment `own`, against visits[first_visit … last_visit-1]; for every batch and head.
struct Block {
  std::int32_t own = 0;
  std::int32_t row_begin = 0;
  std::int32_t first_visit = 0, last_visit = 0;
  std::int32_t tiles = 0;  ///< of all visits
};

/// Blocks in the order in which they should start: most tiles first, so that the last ones to end are short.
struct WorkList {
  std::vector<Block> blocks;
  std::vector<Visit> visits;
  std::vector<Cut> cuts;
};

/// A segment whose rows blocks own. Rows that see nothing need a block only if their result must be written.
struct OwnSide {
  Run run;
  bool write_empty = true;
};

/// One pair of segments and the disjoint bands between them, where a band's queries are own rows.
struct Pairing {
  int own = 0, other = 0;
  Run columns;
  std::span<const Band> bands;
};

/// The band seen from its keys: a key k and a query q meet in it as q and k do in `band`.
DISTATTN_HOST_DEVICE constexpr Band transposed(const Band& band) {
  return {band.k0, band.k1, band.q0, band.q1, -band.hi, -band.lo};
}

/// The band as rows `rows` of `own` and the columns see it: one cut if they have one stride; if not, one for each row.
std::vector<Cut> cuts_of(const Band& band, const Run& own, IndexRange rows, const Run& columns);

/// Cost grows with the tiles that are visible, not with rows × bands. Pairings of one own side come in any order.
WorkList list_work(std::span<const OwnSide> sides, std::span<const Pairing> pairings, TileSize tile);

/// Whether columns begin … begin+63 are visible from `row`: bit j for column begin+j.
DISTATTN_HOST_DEVICE constexpr std::uint64_t visible_columns(const Cut* cuts, int count, std::int32_t row,
                                                             std::int32_t begin) {
  std::uint64_t visible = 0;
  for (int c = 0; c < count; ++c) {
    const Cut::Range range = cuts[c].seen_from(row, begin);
    const std::int32_t first = range.begin > 0 ? range.begin : 0;
    const std::int32_t last = range.end < 64 ? range.end : 64;
    if (first < last) visible |= (~std::uint64_t{0} >> (64 - (last - first))) << first;
  }
  return visible;
}

/// Walks the tiles of a block's visits. Of a visit it keeps what every tile asks; registers are dear.
struct TileCursor {
  int visit = 0, last_visit = 0;
  int other = 0;   ///< segment of the visit
  int column = 0;  ///< where the tile begins
  int end = 0;     ///< of the visit's columns
  int first_cut = 0, last_cut = 0;

  DISTATTN_HOST_DEVICE constexpr TileCursor(const Visit* visits, const Block& block)
      : visit(block.first_visit), last_visit(block.last_visit) {
    begin_visit(visits);
  }
  DISTATTN_HOST_DEVICE constexpr bool valid() const { return visit < last_visit; }
  DISTATTN_HOST_DEVICE constexpr bool is_cut() const { return first_cut != last_cut; }
  DISTATTN_HOST_DEVICE constexpr void advance(const Visit* visits, int columns) {
    column += columns;
    if (column < end) return;
    ++visit;
    begin_visit(visits);
  }

 private:
  DISTATTN_HOST_DEVICE constexpr void begin_visit(const Visit* visits) {
    if (!valid()) return;
    const Visit& begun = visits[visit];
    other = begun.other;
    column = begun.begin;
    end = begun.end;
    first_cut = begun.first_cut;
    last_cut = begun.last_cut;
  }
};

}  // namespace distattn::kernels::cuda
