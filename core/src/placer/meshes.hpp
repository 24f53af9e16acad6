#pragma once
/// The meshes that a component can be shared on, and what each costs.

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/src/placer/components.hpp"
#include "core/src/placer/costs.hpp"
#include "distattn/table.hpp"

namespace distattn {

/// How messages between nodes travel: from owner to user, or into each node once.
enum class Travel : std::uint8_t { straight, routed };

/// A block of a shared component: the place that owns it, and which of the head ranks there.
struct Block {
  int place = 0, group = 0, part = 0;
};

/// A component on a mesh.
struct MeshWay {
  MeshShape shape;
  std::vector<Block> blocks;  ///< in order of positions, equally long
  double tokens = 0;          ///< of the rank that owns most
  double seconds = 0;         ///< of computing and merging, of the busiest rank
  double near = 0, far = 0;   ///< bytes that pass a rank's links, one way
  double far_of_all = 0;      ///< bytes through the far link that a node shares, divided by its ranks
  double near_s = 0, far_s = 0;
  double cost = 0;  ///< seconds on top of computing the component on one rank, all ranks together
  int ranks() const { return shape.ranks(); }
  double link_s() const { return std::max(near_s, far_s); }
};

/// Positions [0, length) of a component in blocks.
std::int64_t block_begin(std::int64_t length, std::size_t block, std::size_t blocks);

/// Makes the ways of components, and keeps them: components of equal lengths have the same.
class Meshes {
 public:
  /// `parts` > 1: every place owns a block of each of them, which are computed one after the other.
  Meshes(const PlacementCosts& costs, int groups, int parts, double most_tokens, Travel travel = Travel::straight);

  /// The ways of a component, the cheapest first.
  const std::vector<MeshWay>& of(const Component& component);

 private:
  std::vector<MeshWay> make(const Component& component) const;
  std::vector<Block> blocks_of(const MeshShape& shape, int owners) const;
  MeshWay way(const Component& component, const MeshShape& shape, std::vector<Block> blocks) const;
  double busiest(const Component& component, const MeshWay& way) const;
  void count_bytes(const Component& component, MeshWay& way) const;

  const PlacementCosts& costs_;
  int groups_, parts_;
  double most_tokens_;
  Travel travel_;
  std::vector<MeshShape> shapes_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<MeshWay>> ways_;  // by length; by place if not causal
};

}  // namespace distattn
