#pragma once
/// Machines as data: what predictions and the automatic choice of a schedule rest on.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/band.hpp"
#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// FLOP/s by tile: what a kernel reaches on a square tile whose side has so many tokens, and on others like it
/// (ProgramSketch::Work::square_tile).
struct RateCurve {
  struct Point {
    double tile = 0;  ///< tokens; 0 in the only point of a rate that does not depend on the tile
    double flops_per_s = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> points;  ///< by tile, at least one

  /// Straight between points on a logarithmic scale of tiles; the last point's beyond it; before the first, in
  /// proportion to the tile, as if a smaller tile took the first point's time per row.
  double at(double tile) const;
  friend bool operator==(const RateCurve&, const RateCurve&) = default;
};

/// One pass's rates for one element type, counted in the pairs that kernels compute: 2·(d + dv) FLOPs forward,
/// 2·(3d + 2dv) backward.
struct KernelRates {
  RateCurve full;     ///< tiles without a mask
  RateCurve partial;  ///< tiles that the mask's edge runs through
  friend bool operator==(const KernelRates&, const KernelRates&) = default;
};

/// What tiles take besides the products of their visible pairs.
struct TileCosts {
  struct Point {
    double head_dim = 0, seconds = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  /// As many pairs are computed as if a kernel took so many queries at a time, all of which met every key that one of
  /// them sees (BandIndex::met_pairs).
  int block = 1;
  /// By Pass: of one tile of one head, whatever its size, by head dimension; empty: nothing.
  std::array<std::vector<Point>, 2> points;
  /// By Pass: seconds of one computed pair, whatever its head dimension (softmax); 0: they are part of the rates.
  std::array<double, 2> pair_s{};

  /// Straight between points, the first point's before it, in proportion to the dimension beyond the last one.
  double seconds(Pass pass, double head_dim) const;
  friend bool operator==(const TileCosts&, const TileCosts&) = default;
};

/// Forward tiles of few queries, as while tokens are decoded: their query heads read a key head together, and bringing
/// keys and values takes as much time as multiplying them.
struct FewQueries {
  struct Rates {
    double flops_per_s = 0;  ///< in the pairs that are visible
    /// Bytes of keys and values that are seen, by how many of them a node's ranks read in a step: few stay in caches.
    RateCurve key_bytes_per_s;
    friend bool operator==(const Rates&, const Rates&) = default;
  };
  int queries = 0;                            ///< of a tile at most; 0: tiles of few queries are like others
  std::array<std::optional<Rates>, 4> rates;  ///< by DType; absent: the same

  /// Nothing where a tile of so many queries is like others.
  const Rates* of(DType dtype, Pass pass, std::int64_t tile_queries) const;
  friend bool operator==(const FewQueries&, const FewQueries&) = default;
};

/// A port: one direction of a rank's, or of a node's, connection. Where ranks compute on cores, the near link is a core
/// that copies: bytes are its work, and the latency of a rank's exchange, whose thread sleeps and wakes once for all it
/// sends and receives.
struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

/// Whether every rank has a far link of its own or a node's ranks share one.
enum class LinkOwner : std::uint8_t { rank, node };

/// What connects ranks that are processes, as one transport was measured.
struct MeasuredLinks {
  std::optional<Link> near;  ///< nothing: no two ranks were on one node
  std::optional<Link> far;   ///< nothing: all were on one
  LinkOwner far_owner = LinkOwner::rank;
  friend bool operator==(const MeasuredLinks&, const MeasuredLinks&) = default;
};

struct Machine {
  std::string name;
  int nodes = 1, ranks_per_node = 1;
  Link near, far;
  LinkOwner far_owner = LinkOwner::rank;
  std::map<std::string, MeasuredLinks> transports;  ///< by transport, where near and far are not its links
  /// Of one device; where ranks compute on cores, of one thread. By DType, then Pass; absent: never stated.
  std::array<std::array<std::optional<KernelRates>, 2>, 4> rates;
  TileCosts tiles;
  FewQueries few;
  std::int64_t memory_bytes = 0;  ///< of one rank's device; where ranks compute on cores, of the node
  int cores = 0;                  ///< of a node, shared by its ranks' threads; 0: every rank has a device of its own
  double memory_bytes_per_s = 0;  ///< of a rank, or a thread on cores, that merges; 0: merging costs nothing
  std::map<std::string, std::string> sources;  ///< by field: where its figure is from
  std::string measured;  ///< UTC time of calibration, "2026-02-03T04:05:06Z"; empty: never measured here
  std::string backend;   ///< whose kernels were measured; empty: the figures stand for any

  int ranks() const { return nodes * ranks_per_node; }
  /// Ranks fill nodes in their order; a single node takes any number.
  int node_of(Rank rank) const { return nodes == 1 ? 0 : rank / ranks_per_node; }
  /// Of `ranks` ranks, those that are on the first node, the fullest.
  int on_a_node(int ranks) const { return nodes == 1 || ranks < ranks_per_node ? ranks : ranks_per_node; }
  bool states(DType dtype) const { return rates[static_cast<std::size_t>(dtype)][0].has_value(); }
  /// Whether the figures are this backend's too.
  bool describes(std::string_view computing) const { return backend.empty() || backend == computing; }
  /// The machine whose near and far links are those of this transport, where they were measured.
  Machine over(std::string_view transport) const;
  /// The machine with nodes of `node_size` ranks, where it has several nodes and unless that is 0. It keeps several: a
  /// single one takes any number of ranks.
  Machine in_nodes_of(int node_size) const;
  /// Throws Error(usage) when the machine states no rates for this element type.
  const KernelRates& rates_of(DType dtype, Pass pass) const;
  /// Memory that one of `ranks` ranks may use.
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

/// A built-in machine, "this" (the stored calibration where it can be used, else nominal figures), or else a file.
/// Throws Error(usage).
Machine find_machine(const std::string& name_or_file);

/// This machine with nominal figures: cores and memory as the operating system tells them, the rest typical of a
/// server, never measured here.
Machine nominal_machine();

/// Where the calibration of this machine is stored: $XDG_CACHE_HOME/distattn/machine-HOST-CORES.json, or under
/// ~/.cache. One that was measured on fewer or more cores than this process may use is another's.
std::filesystem::path calibration_file();

/// What is stored there. One that cannot be used stops nobody: then there is no machine, and `why_not` says what is
/// wrong and what mends it. Neither where nothing is stored.
struct StoredCalibration {
  std::optional<Machine> machine;
  std::string why_not;
};
StoredCalibration stored_calibration();

/// Makes room for a calibration: its folder, and nothing in its place that a file could not replace. Throws
/// Error(environment) when none can be stored: said before one is measured, not after.
void require_calibration_folder();
/// Stores a calibration, whole or not at all, in place of whatever is there. Throws Error(environment) when it cannot
/// be written.
void store_calibration(const Machine& machine);

/// "measured here 3 days ago", or why these are not this machine's figures.
std::string describe_age(const Machine& machine);

}  // namespace distattn
#pragma GCC visibility pop
