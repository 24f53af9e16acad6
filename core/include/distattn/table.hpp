#pragma once
/// Tables: the tiles that each rank computes in each step, which is all that a schedule's author writes
/// (docs/mathematics.md).

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "distattn/layout.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// One head group's query segment against one key segment.
struct Tile {
  int group = 0;
  SegmentId query{}, key{};
  friend bool operator==(const Tile&, const Tile&) = default;
};

/// Generates tiles, so that a list of all tiles is never kept. `tiles(step, rank, sink)` calls `sink` once for each
/// live tile, in a fixed order. May be called from several threads.
struct Table {
  using Sink = std::function<void(const Tile&)>;
  int steps = 0;
  std::function<void(int step, Rank rank, const Sink& sink)> tiles;
};

/// Building block of most tables: calls `sink` for the live tiles of query_rank's queries and key_rank's keys.
inline void emit_tiles(const Tiles& tiles, int group, Rank query_rank, Rank key_rank, const Table::Sink& sink) {
  for (const SegmentId i : tiles.queries_of(query_rank))
    for (const SegmentId j : tiles.keys_of(key_rank))
      if (tiles.live(i, j)) sink({group, i, j});
}

/// Ranks as U head groups × R rows × C columns, rank = u + U·(r + R·c).
struct MeshShape {
  int groups = 1, rows = 1, columns = 1;
  int ranks() const { return groups * rows * columns; }
  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

/// Rank (u,r,c) computes, for head group u, the queries of row r against the keys of column c: first its own queries
/// against the column's key shards, one in each step, its own first; then the row's other query shards against the keys
/// that have arrived. This family includes Ring Attention (1×P×1), BurstAttention's backward (1×1×P), Attention2D
/// (1×R×C), Ulysses (P×1×1), USP (U×P/U×1). node_size > 0: partners inside a node come first (LoongTrain's double
/// ring).
Table mesh(std::shared_ptr<const Tiles> tiles, MeshShape shape, int node_size = 0);

/// DistFlashAttn Algorithm 2, block layout, causal: ranks that have no own tiles left help later ranks. Any P.
Table balanced(std::shared_ptr<const Tiles> tiles);

/// balanced() with the last step of even P shared between owner and helper; block layout with split 2.
Table balanced_split(std::shared_ptr<const Tiles> tiles);

/// The meaning of a schedule's name for a problem and a number of ranks.
struct Recipe {
  std::string name;  ///< canonical, e.g. "mesh:2x2x2:zigzag"
  Layout layout;
  int groups = 1;                ///< head groups
  Mode mode = Mode::overlapped;  ///< the schedule's default mode
  std::function<Table(std::shared_ptr<const Tiles>, int node_size)> table;
  std::optional<MeshShape> mesh = {};  ///< of a table that mesh() makes, which may have other layouts
};

/// A recipe, or the reason why this schedule does not apply.
using RecipeOrReason = std::variant<Recipe, std::string>;

/// What may follow a schedule's name, each part behind a colon.
struct ScheduleArguments {
  std::string required{};            ///< numbers, as capitals: "UxRxC"; empty: none
  std::string optional{};            ///< numbers that may be left out; empty: none
  std::vector<std::string> words{};  ///< one of these may come last: "zigzag", "striped[:B]" with a number
};

/// A family of schedules under one name; `arguments` is what follows the colon ("2x2x2:zigzag"), or empty.
struct NamedSchedule {
  std::string name;
  ScheduleArguments takes{};
  /// Throws Error(usage) for arguments that the grammar does not know.
  std::function<RecipeOrReason(std::string_view arguments, const Problem&, int ranks)> resolve;
  /// The arguments that "all" tries; if empty, only the bare name.
  std::function<std::vector<std::string>(const Problem&, int ranks)> usual_arguments{};

  /// How it is written: "mesh:UxRxC[:block|zigzag|striped[:B]|chunked]".
  std::string grammar() const;
};

/// Every registered schedule, in the order of registration.
const std::vector<NamedSchedule>& schedules();
/// Registers the caller's own schedule, which can then be used by name everywhere. Throws Error(usage) for a name that
/// is taken or contains one of ":/,". Not thread-safe: call it before any run.
void register_schedule(NamedSchedule schedule);

/// Resolves "name[:arguments]". Throws Error(usage) for an unknown name, listing the known ones.
RecipeOrReason resolve_schedule(std::string_view name, const Problem& problem, int ranks);

/// A forward and a backward table of one layout, written F/B ("ring/burst").
struct RecipePair {
  Recipe forward, backward;
};
/// Resolves "F" or "F/B", or returns why not, such as for passes of different layouts. Head groups may differ, because
/// tokens stay with their owners.
std::variant<RecipePair, std::string> resolve_pair(std::string_view name, const Problem& problem, int ranks);
/// The same on a layout that is named (layout_named), whatever the schedules' own: each must be a mesh.
std::variant<RecipePair, std::string> resolve_pair(std::string_view name, const Layout& layout, const Problem& problem,
                                                   int ranks);
/// "F", or "F/B" if the passes' names differ.
std::string name_of(const RecipePair& pair);

/// The names that "all" stands for: every fixed name, attention2d at its default, usp and mesh with U = 2, 4, 8 if that
/// divides the ranks and fits the heads. Not all of them apply; resolve_schedule says why not.
std::vector<std::string> all_schedule_names(const Problem& problem, int ranks);

}  // namespace distattn
#pragma GCC visibility pop
