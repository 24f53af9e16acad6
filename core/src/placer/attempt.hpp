#pragma once
/// One attempt to pack components within a given time.

#include <optional>
#include <span>
#include <vector>

#include "core/src/placer/packer.hpp"
#include "distattn/index.hpp"

namespace distattn {

/// Pieces of a component one after the other, for the ranks that own them.
struct Cuts {
  std::vector<std::int64_t> ends;  ///< of each piece
  std::vector<Rank> ranks;
  std::vector<double> seconds;  ///< of each piece against the pieces that it sees
  std::vector<double> in, out;  ///< bytes
  std::int64_t count(std::size_t piece) const { return ends[piece] - (piece == 0 ? 0 : ends[piece - 1]); }
};

class Attempt {
 public:
  Attempt(const Parcels& parcels, Meshes& meshes, double seconds)
      : parcels_(parcels),
        costs_(parcels.costs),
        meshes_(meshes),
        limit_s_(seconds),
        packing_(parcels.costs.ranks),
        load_(packing_.load) {}

  std::optional<Packing> run();

 private:
  /// A way that fits, and what it costs on top of computing the component on one rank.
  struct Split {
    double cost = 0;
    Cuts cuts;
  };
  struct Meshed {
    double cost = 0;
    const MeshWay* way = nullptr;
    std::vector<Rank> ranks;
    std::vector<double> seconds;  ///< of each
  };

  int ranks() const { return costs_.ranks; }
  double room(Rank rank) const { return parcels_.most_of(rank) - load_.tokens[index(rank)]; }
  /// Seconds of tiles that a rank computes within the limit, as a rank with speed 1 takes them.
  double budget(Rank rank) const { return limit_s_ * costs_.speed(rank); }
  /// What it has left for more than what its tokens take anyhow.
  double slack(Rank rank) const {
    const double to_come = std::max(0.0, parcels_.share_of(rank) - load_.tokens[index(rank)]);
    return budget(rank) - load_.seconds[index(rank)] - parcels_.light * to_come;
  }
  /// Seconds in which a rank's links are busy, by rank.
  std::vector<double> busy() const;
  bool link_has(Rank rank, double in, double out) const {
    return std::max(load_.in[index(rank)] + in, load_.out[index(rank)] + out) / costs_.link().bytes_per_s <= limit_s_;
  }

  bool add(int component);
  bool keep_whole(int component);
  void add_pieces(int component, const Cuts& cuts, bool far);
  void add_mesh(int component, const Meshed& mesh);

  // splitting.cpp
  std::optional<Split> split(int component) const;
  std::optional<Split> split_in(int component, std::span<const Rank> ranks) const;
  std::optional<Cuts> cut(int component, std::vector<Rank> ranks) const;
  std::optional<Cuts> cut_back(int component, std::span<const Rank> owners) const;
  bool links_have(const Cuts& cuts) const;
  double cost_of(int component, const Cuts& cuts) const;
  std::optional<Cuts> cut_by(int component, std::span<const Rank> owners, std::span<const double> shares) const;
  std::optional<Cuts> pour(int component) const;
  bool is_near(const Cuts& cuts) const;
  void count(int component, Cuts& cuts) const;
  std::vector<std::vector<Rank>> domains() const;

  // sharing.cpp
  std::optional<Meshed> share(int component, double cheaper_than) const;
  std::vector<Rank> ranks_for(const MeshWay& way, const std::vector<double>& scores) const;
  std::vector<double> seconds_on(const MeshWay& way, const std::vector<Rank>& ranks) const;

  // filling.cpp
  bool fill(const std::vector<bool>& packed);
  bool fill_apart(int first, int end);
  std::vector<int> largest_meshes() const;
  void even_out();

  const Parcels& parcels_;
  const PlacementCosts& costs_;
  Meshes& meshes_;
  double limit_s_;
  Packing packing_;
  Load& load_;
};

}  // namespace distattn
