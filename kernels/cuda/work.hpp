#pragma once
/// What the thread blocks of one launch compute: lists made on the host, walked by the kernels.
///
/// A block owns some rows of one segment and visits columns of others: queries that visit keys, or keys that visit
/// queries. The mask is settled here. A kernel sees stretches of tiles that are visible throughout, and tiles with
/// the few bands that cut them; it never looks at what is invisible.

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

/// Columns begin … end-1 of the segment `other`, in tiles that start at multiples of TileSize::columns. The bands
/// bands[first_band … last_band-1] cut every tile of the stretch; without bands every pair is visible.
struct Visit {
  std::int32_t other = 0;
  std::int32_t begin = 0, end = 0;
  std::int32_t first_band = 0, last_band = 0;
};

/// Rows row_begin … of the segment `own`, against visits[first_visit … last_visit-1]; for every batch and head.
struct Block {
  std::int32_t own = 0;
  std::int32_t row_begin = 0;
  std::int32_t first_visit = 0, last_visit = 0;
};

/// Blocks in the order in which they should start: most tiles first, so that the last ones to end are short.
struct WorkList {
  std::vector<Block> blocks;
  std::vector<Visit> visits;
  std::vector<Band> bands;
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

/// Cost grows with the tiles that are visible, not with rows × bands. Pairings of one own side come in any order.
WorkList list_work(std::span<const OwnSide> sides, std::span<const Pairing> pairings, TileSize tile);

/// Whether columns begin … begin+63 of `columns` are visible from `position`: bit j for column begin+j.
DISTATTN_HOST_DEVICE constexpr std::uint64_t visible_columns(const Band* bands, int count, std::int64_t position,
                                                             const Run& columns, std::int64_t begin) {
  std::uint64_t visible = 0;
  for (int b = 0; b < count; ++b) {
    const IndexRange range = band_keys(bands[b], position, columns);
    const std::int64_t first = range.begin > begin ? range.begin - begin : 0;
    const std::int64_t last = range.end < begin + 64 ? range.end - begin : 64;
    if (first < last) visible |= (~std::uint64_t{0} >> (64 - (last - first))) << first;
  }
  return visible;
}

/// Walks the tiles of a block's visits. Of a visit it keeps what every tile asks; registers are dear.
struct TileCursor {
  int visit = 0, last_visit = 0;
  int other = 0;     ///< segment of the visit
  int column = 0;    ///< where the tile begins
  int end = 0;       ///< of the visit's columns
  bool cut = false;  ///< bands cut the tile

  DISTATTN_HOST_DEVICE constexpr TileCursor(const Visit* visits, const Block& block)
      : visit(block.first_visit), last_visit(block.last_visit) {
    begin_visit(visits);
  }
  DISTATTN_HOST_DEVICE constexpr bool valid() const { return visit < last_visit; }
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
    cut = begun.first_band != begun.last_band;
  }
};

}  // namespace distattn::kernels::cuda
