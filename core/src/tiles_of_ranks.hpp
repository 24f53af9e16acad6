#pragma once
/// What tables are made of: the tiles of one rank's queries against another's keys.

#include "distattn/table.hpp"

namespace distattn {

/// Calls sink for the live tiles of the queries that query_rank owns against the keys that key_rank owns.
inline void emit_tiles(const Tiles& tiles, int group, Rank query_rank, Rank key_rank, const Table::Sink& sink) {
  for (const SegmentId i : tiles.queries_of(query_rank))
    for (const SegmentId j : tiles.keys_of(key_rank))
      if (tiles.live(i, j)) sink({group, i, j});
}

}  // namespace distattn
