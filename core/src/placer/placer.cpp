#include "core/src/placer/placer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace distattn {
namespace {

/// Times are tried from a bound upward until one suffices, then between that and the last that did not.
constexpr double first_step = 1.2, close_enough = 1.004;
constexpr int most_steps = 120, most_bisections = 14;

double least_seconds(const Parcels& parcels) {
  return std::max(1.001 * parcels.light * parcels.share, 0.9 * parcels.workload.sum / parcels.costs.ranks) /
         parcels.costs.mean_speed;
}

struct Packed {
  Packing packing;
  double seconds;
};

std::optional<Packed> best_packing(const Parcels& parcels, Meshes& meshes) {
  double enough = std::max(least_seconds(parcels), 1e-12);
  std::optional<Packing> best;
  for (int step = 0; step < most_steps && !best; ++step) {
    if (step > 0) enough *= first_step;
    best = pack(parcels, meshes, enough);
  }
  if (!best) return {};
  double too_short = enough / first_step;
  for (int step = 0; step < most_bisections && enough > close_enough * too_short; ++step) {
    const double between = std::sqrt(too_short * enough);
    if (std::optional<Packing> found = pack(parcels, meshes, between)) {
      best = std::move(found);
      enough = between;
    } else {
      too_short = between;
    }
  }
  return Packed{*std::move(best), enough};
}

std::optional<Packed> packed(const Workload& workload, const PlacementCosts& costs, const PackingWish& wish,
                             std::int64_t tokens) {
  const Parcels parcels(workload, costs, wish, tokens);
  Meshes meshes(costs, wish.groups, wish.parts, parcels.largest_share(), wish.travel);
  return best_packing(parcels, meshes);
}

/// Whether a piece goes on where the last segment ends, for the same owner.
bool continues(const Piece& piece, const Piece& last, const Segment& segment) {
  const bool same = piece.kind == Piece::Kind::whole ? last.kind == Piece::Kind::whole
                                                     : piece.kind == Piece::Kind::split && last.kind == piece.kind &&
                                                           last.component == piece.component;
  return same && segment.owner == piece.owner && segment.run.start + segment.run.count == piece.start;
}

Placement placement_of(Packing packing, const PlacementCosts& costs, int groups) {
  Placement placement;
  placement.ranks = costs.ranks;
  placement.groups = groups;
  placement.node_size = costs.node_size;
  std::map<int, std::int32_t> mesh_of;  // by component
  for (auto& [component, mesh] : packing.meshes) {
    mesh_of.emplace(component, static_cast<std::int32_t>(placement.meshes.size()));
    placement.meshes.push_back(std::move(mesh));
  }
  std::sort(packing.pieces.begin(), packing.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.start < b.start; });
  for (std::size_t p = 0; p < packing.pieces.size(); ++p) {
    const Piece& piece = packing.pieces[p];
    if (p > 0 && continues(piece, packing.pieces[p - 1], placement.segments.back())) {
      placement.segments.back().run.count += piece.count;
      continue;
    }
    placement.segments.push_back({{piece.start, piece.count, 1}, piece.owner});
    placement.mesh_of.push_back(piece.kind == Piece::Kind::whole ? -1 : mesh_of.at(piece.component));
    placement.part_of.push_back(piece.part);
  }
  const auto first = [](std::int32_t part) { return part == 0; };
  if (std::all_of(placement.part_of.begin(), placement.part_of.end(), first)) placement.part_of.clear();
  return placement;
}

}  // namespace

std::optional<Placement> place(const Workload& workload, const PlacementCosts& costs, const PackingWish& wish,
                               std::int64_t tokens) {
  std::optional<Packed> best = packed(workload, costs, wish, tokens);
  if (!best) return {};
  return placement_of(std::move(best->packing), costs, wish.groups);
}

double packed_seconds(const Workload& workload, const PlacementCosts& costs, const PackingWish& wish,
                      std::int64_t tokens) {
  const std::optional<Packed> best = packed(workload, costs, wish, tokens);
  return best ? best->seconds : std::numeric_limits<double>::infinity();
}

}  // namespace distattn
