#pragma once
/// Machines as data, for predictions and for the automatic choice of a schedule.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/band.hpp"
#include "distattn/index.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// FLOP/s by tile size: the rate of a kernel on square tiles with a given side in tokens, and on work that is like them
/// (ProgramSketch::Work::side).
struct RateCurve {
  struct Point {
    double tile = 0;  ///< tokens; 0 in the only point of a rate that does not depend on the tile
    double flops_per_s = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> points;  ///< by tile, at least one

  /// Interpolates linearly in the logarithm of the tile; beyond the last point, the last rate; before the first, in
  /// proportion to the tile, as if each row took the first point's time.
  double at(double tile) const;
  friend bool operator==(const RateCurve&, const RateCurve&) = default;
};

/// What the side is that a machine's curves are given by.
enum class RatesBy : std::uint8_t {
  tile,   ///< of each tile alone, as if it were computed by itself
  launch  ///< of a launch: the tiles of a step, in which those that share queries or keys are one larger tile
};

/// Rates of one pass for one element type, per computed pair: 2·(d + dv) FLOPs forward, 2·(3d + 2dv) backward.
struct KernelRates {
  RateCurve full;     ///< tiles without a mask
  RateCurve partial;  ///< tiles that the mask covers in part
  friend bool operator==(const KernelRates&, const KernelRates&) = default;
};

/// Costs of tiles and launches other than the products of their visible pairs.
struct TileCosts {
  struct Point {
    double head_dim = 0, seconds = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  /// Granularity of masking, in queries: within a group of this many, a key that is visible to one is computed for all
  /// (BandIndex::computed_pairs).
  int block = 1;
  /// Fixed time of one tile of one head, by head dimension; empty: 0.
  PerPass<std::vector<Point>> points;
  /// Seconds for each computed pair, for any head dimension (softmax); 0: included in the rates.
  PerPass<double> pair_s{};
  /// Seconds that a launch takes whatever is in it, once for all tiles of a step.
  PerPass<double> launch_s{};

  /// Interpolates linearly; before the first point, its value; beyond the last point, in proportion to the dimension.
  double seconds(Pass pass, double head_dim) const;
  friend bool operator==(const TileCosts&, const TileCosts&) = default;
};

/// Forward tiles with few queries, as in decoding: the query heads of a key head are computed together, and reading
/// keys and values takes as long as the products.
struct FewQueries {
  struct Rates {
    double flops_per_s = 0;  ///< per visible pair
    /// Rate of reading the keys and values that are seen, by the bytes that a node's ranks read in a step: few bytes
    /// stay in caches.
    RateCurve key_bytes_per_s;
    friend bool operator==(const Rates&, const Rates&) = default;
  };
  int queries = 0;                       ///< largest number of queries of such a tile; 0: there are none
  PerDType<std::optional<Rates>> rates;  ///< absent: like other tiles

  /// Null if a tile with `tile_queries` queries is not such a tile.
  const Rates* of(DType dtype, Pass pass, std::int64_t tile_queries) const;
  friend bool operator==(const FewQueries&, const FewQueries&) = default;
};

/// One direction of a rank's or a node's connection. If ranks compute on cores, the near link is a core that copies:
/// bytes_per_s is its rate, and latency_s the time to wake a rank's exchange thread, once for all messages of a step.
struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

/// Whether each rank has its own far link or the ranks of a node share one.
enum class LinkOwner : std::uint8_t { rank, node };

/// What was measured over one transport between processes: its links, and its ranks.
struct MeasuredLinks {
  std::optional<Link> near;  ///< absent: no two ranks were on one node
  std::optional<Link> far;   ///< absent: all ranks were on one node
  LinkOwner far_owner = LinkOwner::rank;
  std::vector<double> speeds{};  ///< as Machine::speeds; empty: all ranks were alike
  friend bool operator==(const MeasuredLinks&, const MeasuredLinks&) = default;
};

struct Machine {
  std::string name;
  int nodes = 1, ranks_per_node = 1;
  Link near, far;
  LinkOwner far_owner = LinkOwner::rank;
  std::map<std::string, MeasuredLinks> transports;  ///< links of transports that differ from near and far
  /// Rates of one device or, if ranks compute on cores, of one thread; absent: not stated.
  PerDType<PerPass<std::optional<KernelRates>>> rates;
  RatesBy rates_by = RatesBy::tile;  ///< what their curves are given by
  /// By rank: its rates as a part of those; ranks that are not listed: 1.
  std::vector<double> speeds;
  TileCosts tiles;
  FewQueries few;
  std::int64_t memory_bytes = 0;  ///< memory of one rank's device or, if ranks compute on cores, of a node
  int cores = 0;                  ///< cores of a node, shared by its ranks; 0: every rank has its own device
  double memory_bytes_per_s = 0;  ///< rate of merging, of a rank or, on cores, a thread; 0: free
  std::map<std::string, std::string> sources;  ///< source of each figure, by field
  std::string measured;  ///< UTC time of calibration, "2026-02-03T04:05:06Z"; empty: not measured here
  std::string backend;   ///< backend that was measured; empty: the figures hold for any

  int ranks() const { return nodes * ranks_per_node; }
  /// Ranks fill nodes in order; a single node takes any number of ranks.
  int node_of(Rank rank) const { return nodes == 1 ? 0 : rank / ranks_per_node; }
  /// How many of `ranks` ranks are on the first node, which has most.
  int on_a_node(int ranks) const { return nodes == 1 || ranks < ranks_per_node ? ranks : ranks_per_node; }
  double speed_of(Rank rank) const { return index(rank) < speeds.size() ? speeds[index(rank)] : 1; }
  /// The sum over all ranks.
  double speed_of_all(int ranks) const;
  bool states(DType dtype) const { return rates[dtype][Pass::forward].has_value(); }
  /// Whether the figures hold for this backend.
  bool describes(std::string_view computing) const { return backend.empty() || backend == computing; }
  /// The machine with what was measured over this transport, if anything was, as near, far and speeds.
  Machine over(std::string_view transport) const;
  /// The machine with nodes of `node_size` ranks, unless that is 0 or the machine has one node. It keeps several nodes,
  /// because a single one would take any number of ranks.
  Machine in_nodes_of(int node_size) const;
  /// Throws Error(usage) when the machine states no rates for this element type.
  const KernelRates& rates_of(DType dtype, Pass pass) const;
  /// FLOP/s of one thread, or of a rank's device, in large matrix products: nothing is computed between two of them.
  /// Throws as rates_of does.
  double product_flops_per_s(DType dtype) const;
  /// Memory that each of `ranks` ranks may use.
  std::int64_t memory_of_rank(int ranks) const;
  /// Threads of each of `ranks` ranks on the cores: cores / ranks of a node, at least 1.
  int threads_of_rank(int ranks) const;
  friend bool operator==(const Machine&, const Machine&) = default;
};

/// FLOPs of one visible pair of one query head (two products forward, five backward).
constexpr double flops_per_pair(int head_dim, int value_dim, Pass pass) {
  return pass == Pass::forward ? 2.0 * (head_dim + value_dim) : 2.0 * (3 * head_dim + 2 * value_dim);
}

/// Reads a description. Throws Error(usage) naming `origin` and the field that is missing, negative, unknown or of
/// the wrong type.
Machine machine_from_json(std::string_view text, const std::string& origin);
std::string to_json(const Machine& machine);

/// Names of the machines that are built in; "this" is not among them.
std::vector<std::string> built_in_machines();

/// A built-in machine, "this" (the stored calibration if it can be used, otherwise nominal figures), or a file. Throws
/// Error(usage).
Machine find_machine(const std::string& name_or_file);

/// This machine with nominal figures: cores and memory from the operating system, the rest typical of a server.
Machine nominal_machine();

/// Where the calibration of this machine is stored: $XDG_CACHE_HOME/distattn/machine-HOST-CORES.json, or under
/// ~/.cache. A calibration for another number of cores than this process may use has another name.
std::filesystem::path calibration_file();

/// The stored calibration. If it cannot be used, `machine` is absent and `why_not` says what is wrong and how to mend
/// it; nothing is thrown. Both are empty if nothing is stored.
struct StoredCalibration {
  std::optional<Machine> machine;
  std::string why_not;
};
StoredCalibration stored_calibration();

/// "measured here 3 days ago", or why the figures are not this machine's.
std::string describe_age(const Machine& machine);

}  // namespace distattn
#pragma GCC visibility pop
