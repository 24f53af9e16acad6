#pragma once
/// What a placement costs on a machine: the figures that the search for one needs, for the passes together.

#include <cstdint>
#include <vector>

#include "core/src/prediction/launch_times.hpp"
#include "distattn/index.hpp"
#include "distattn/machine.hpp"
#include "distattn/problem.hpp"
#include "distattn/request.hpp"

namespace distattn {

/// Bytes of one token, all heads.
struct TokenBytes {
  double query = 0, key_value = 0, output = 0, dkey_value = 0;
};

/// Of one pass on one machine.
class PassCosts {
 public:
  PassCosts(const Problem& problem, Pass pass, const Machine& machine, int threads);

  /// Seconds of a tile of all heads with this many visible pairs of a head. In a launch it is part of a tile with a
  /// side that is `times` as long.
  double tile(double pairs, double queries, double keys, double times = 1) const;
  const TokenBytes& bytes() const { return bytes_; }

 private:
  LaunchTimes launches_;
  double heads_, threads_;
  TokenBytes bytes_;
};

/// Ranks and what connects them. Seconds of tiles are those of a rank with speed 1.
struct PlacementCosts {
  PlacementCosts(const Problem& problem, Passes passes, const Machine& machine, int ranks, int threads);

  double tile(double pairs, double queries, double keys, double times = 1) const;
  /// Of writing and reading what a rank adds to its results.
  double merge(double added) const { return memory_bytes_per_s > 0 ? 3 * added / memory_bytes_per_s : 0; }
  double speed(Rank rank) const { return speeds[index(rank)]; }
  /// Ranks that share a component by its rows: those of a node, or all where every rank is a node.
  int domain() const { return node_size > 1 ? node_size : ranks; }
  /// Of what goes through a rank's or a node's far link.
  double far_seconds(double bytes_of_rank, double bytes_of_node) const {
    return (far_shared && node_size > 1 ? bytes_of_node : bytes_of_rank) / far.bytes_per_s;
  }
  /// Within a domain.
  const Link& link() const { return node_size > 1 ? near : far; }

  std::vector<PassCosts> passes;
  std::vector<double> speeds;  ///< by rank
  double mean_speed = 1;
  TokenBytes bytes;  ///< of all passes
  int ranks, node_size, kv_heads;
  Link near, far;
  bool far_shared;
  double memory_bytes_per_s;
};

}  // namespace distattn
