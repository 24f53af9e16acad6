#pragma once
/// Packs the components of a mask on ranks so that none needs more than a given time.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/src/placer/components.hpp"
#include "core/src/placer/costs.hpp"
#include "core/src/placer/meshes.hpp"
#include "distattn/layout.hpp"
#include "distattn/placement.hpp"

namespace distattn {

/// How a component is cut for a few ranks: each as its time allows, or also as much as possible for the last ones,
/// which leaves fewest bytes to receive.
enum class Cutting : std::uint8_t { by_time, from_end };

/// Which ranks share a short component that fits nowhere: those with most room, or those of one mesh if they have any,
/// so that meshes do not wait for each other.
enum class Sharers : std::uint8_t { any, of_a_mesh };

/// What a search may choose.
struct PackingWish {
  int groups = 1;          ///< head groups of the tables
  double hide = 0.3;       ///< share of a mesh's messages that nothing hides
  int parts = 1;           ///< as in Meshes
  double balance = 0.005;  ///< tokens that a rank may own beyond its share
  Balance by = Balance::tokens;
  Travel travel = Travel::straight;
  Cutting cutting = Cutting::by_time;
  Sharers sharers = Sharers::any;
};

/// A part of a component, or a run of whole components.
struct Piece {
  std::int64_t start = 0, count = 0;
  Rank owner = 0;
  int component = 0;  ///< the first of a run
  enum class Kind : std::uint8_t { whole, split, meshed } kind = Kind::whole;
  double seconds = 0;
  int part = 0;  ///< of a component that is computed in parts
};

/// What each rank has been given.
struct Load {
  explicit Load(int ranks) : seconds(index(ranks)), tokens(seconds), in(seconds), out(seconds), far(seconds) {}
  std::vector<double> seconds, tokens;
  std::vector<double> in, out;  ///< bytes within a domain
  std::vector<double> far;      ///< bytes between nodes
};

struct Packing {
  explicit Packing(int ranks) : load(ranks) {}
  Load load;
  std::vector<Piece> pieces;
  std::vector<std::pair<int, PlacedMesh>> meshes;  ///< by component
};

/// What components take on one rank. Keeps a reference to them.
struct Workload {
  Workload(const std::vector<Component>& components, const PlacementCosts& costs);

  const std::vector<Component>& components;
  double light = 0;            ///< the least seconds that a token takes: that much is spent however tokens are packed
  double sum = 0;              ///< seconds of all
  std::vector<double> work;    ///< of each component
  std::vector<double> excess;  ///< beyond light
  std::vector<int> order;      ///< by falling excess
  std::vector<std::int64_t> longest;  ///< of those from each place of that order on
};

/// What is known of a problem before a time is tried. Keeps references to what it is made of.
struct Parcels {
  Parcels(const Workload& workload, const PlacementCosts& costs, const PackingWish& wish, std::int64_t tokens);

  const Component& component(int c) const { return workload.components[index(c)]; }
  double work_of(int c) const { return workload.work[index(c)]; }
  double excess_of(int c) const { return workload.excess[index(c)]; }

  const Workload& workload;
  const PlacementCosts& costs;
  PackingWish wish;
  /// How much more than others a rank owns.
  double weight(Rank rank) const { return wish.by == Balance::work ? costs.speed(rank) / costs.mean_speed : 1; }
  double share_of(Rank rank) const { return share * weight(rank); }
  /// Within the balance, unless that were less than what equal shares round up to.
  double most_of(Rank rank) const {
    return std::max(std::ceil(share_of(rank)), std::floor(share_of(rank) * (1 + wish.balance)));
  }
  double largest_share() const;

  double share;       ///< tokens of a rank on average
  double light;       ///< as in the workload
  double copies = 1;  ///< of a key head that several head groups share
};

/// Nothing if some rank or link needs longer than `seconds`.
std::optional<Packing> pack(const Parcels& parcels, Meshes& meshes, double seconds);

}  // namespace distattn
