#pragma once
/// The tiles of a placement: which rank computes each.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "distattn/placement.hpp"

namespace distattn {

/// Of one pass or the other: what is live and who computes it does not depend on the pass.
class PlacedTiles {
 public:
  /// Both outlive this.
  PlacedTiles(const Tiles& tiles, const Placement& placement);

  /// Calls visit(rank, tile, distance) for every live tile, by query, key and group. The distance is 0 if the rank
  /// owns query and key.
  template <class Visit>
  void for_each(const Visit& visit) const {
    const auto queries = static_cast<int>(places_.size());
    for (int i = 0; i < queries; ++i) {
      for (int j = 0; j < queries; ++j) {
        if (tiles_.live(SegmentId{i}, SegmentId{j})) of_pair(SegmentId{i}, SegmentId{j}, visit);
      }
    }
  }

  /// The largest distance of tiles that are shared as this one is.
  int farthest(SegmentId i, SegmentId j) const {
    const int number = mesh(i);
    if (number < 0 || number != mesh(j)) return placement_.ranks - 1;
    const MeshShape& shape = placement_.meshes[index(number)].shape;
    return std::max(1, shape.rows - 1 + (shape.columns > 1 ? shape.columns : 0));
  }

  Rank owner(SegmentId segment) const { return placement_.segments[index(segment)].owner; }

 private:
  struct Place {
    int row = 0, column = 0;
  };

  int mesh(SegmentId i) const { return placement_.mesh_of.empty() ? -1 : placement_.mesh_of[index(i)]; }

  template <class Visit>
  void of_pair(SegmentId i, SegmentId j, const Visit& visit) const {
    const int mesh_number = mesh(i);
    const bool shared = mesh_number >= 0 && mesh_number == mesh(j);
    if (!shared) {
      const int distance = (owner(i) - owner(j) + placement_.ranks) % placement_.ranks;
      for (int group = 0; group < placement_.groups; ++group) visit(owner(i), Tile{group, i, j}, distance);
      return;
    }
    const PlacedMesh& mesh = placement_.meshes[index(mesh_number)];
    const auto [groups, rows, columns] = mesh.shape;
    const Place query = places_[index(i)], key = places_[index(j)];
    const int distance = query.column == key.column ? (query.row - key.row + rows) % rows
                                                    : rows + (query.column - key.column + columns) % columns;
    const int of_a_rank = placement_.groups / groups;
    for (int group = 0; group < placement_.groups; ++group) {
      const int at = group / of_a_rank + groups * (query.row + rows * key.column);
      const Rank rank = mesh.ranks[index(at)];
      const bool own = owner(i) == rank && owner(j) == rank;
      visit(rank, Tile{group, i, j}, own ? 0 : std::max(1, distance));
    }
  }

  const Tiles& tiles_;
  const Placement& placement_;
  std::vector<Place> places_;  // by segment
};

}  // namespace distattn
