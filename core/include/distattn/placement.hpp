#pragma once
/// Placements: layouts that are lists of segments, and which ranks share the tiles of each part of a mask
/// (docs/placement.md).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/index.hpp"
#include "distattn/layout.hpp"
#include "distattn/table.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Ranks that share the tiles of some segments. A segment's place (r, c) is that of its owner: the rank at
/// u + U·(r + R·c) is ranks[u + U·(r + R·c)]. For head group u, the query segment at (r, ·) against the key segment at
/// (·, c) is computed by the rank at (u, r, c).
struct PlacedMesh {
  MeshShape shape;
  std::vector<Rank> ranks;
  friend bool operator==(const PlacedMesh&, const PlacedMesh&) = default;
};

/// When tiles are computed whose query or key another rank owns. Tiles of a rank's own tokens come first, and last as
/// many of them as PlacedPass says.
enum class Staging : std::uint8_t {
  together,          ///< all in one step
  by_distance,       ///< by the distance of their places: rows first, then columns
  by_place,          ///< by rows, and among nodes by the place in its node of the rank that sends
  by_part,           ///< by the part of its component that the query is in
  by_distance_late,  ///< as by_distance, where the last steps of all meshes are one: few distances come late
};
const char* name_of(Staging staging);

struct PlacedPass {
  Staging staging = Staging::by_distance;
  std::vector<std::int32_t> last{};  ///< by rank: own tiles that hide returning results; empty: none
  friend bool operator==(const PlacedPass&, const PlacedPass&) = default;
};

/// Who owns which tokens, and who computes which tiles: plain data, the same for both passes and all ranks.
struct Placement {
  int ranks = 1;
  int groups = 1;     ///< head groups of all tiles; those of a mesh divide them
  int node_size = 1;  ///< consecutive ranks that Staging::by_place takes for a node
  std::vector<Segment> segments;
  std::vector<PlacedMesh> meshes{};
  /// By segment: its mesh, or −1. A tile of segments that are not in one mesh is computed by the query's owner.
  std::vector<std::int32_t> mesh_of{};
  /// By segment: its part, for Staging::by_part; empty: all are in one.
  std::vector<std::int32_t> part_of{};
  PerPass<PlacedPass> passes{};
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Throws Error(usage) unless every mesh has its number of ranks, each once, and owns its segments.
void check(const Placement& placement);

/// {"schema_version":1,"ranks":2,"segments":[{"start":0,"count":512,"owner":0}, …]}, and what else docs/placement.md
/// lists; or schedules as to_json(Schedule) writes them, of which only the owners are taken. Throws Error(usage),
/// naming `origin` and the field, as check does.
Placement placement_from_json(std::string_view text, const std::string& origin);
std::string to_json(const Placement& placement);

/// The placement as a schedule of one pass, named "placed".
Recipe recipe_of(const std::shared_ptr<const Placement>& placement, Pass pass);

}  // namespace distattn
#pragma GCC visibility pop
