#include "core/src/placer/packer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/src/placer/attempt.hpp"

namespace distattn {
namespace {

/// Components with less than this share of the time beyond what their tokens take, and not too long, fill what is left.
constexpr double small_excess = 0.002;
constexpr double small_length = 0.25;  // of a rank's tokens
constexpr double rounding = 1.001;
/// What sums of weights are short of whole numbers by.
constexpr double rounds_up = 1e-6;

}  // namespace

Workload::Workload(const std::vector<Component>& all, const PlacementCosts& costs)
    : components(all), light(std::numeric_limits<double>::infinity()), order(all.size()), longest(all.size()) {
  for (const Component& component : components) {
    const auto length = static_cast<double>(component.length());
    work.push_back(costs.tile(component.pairs(), length, length));
    light = std::min(light, work.back() / length);
    sum += work.back();
  }
  for (std::size_t c = 0; c < work.size(); ++c)
    excess.push_back(work[c] - light * static_cast<double>(components[c].length()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [this](int a, int b) { return excess[index(a)] > excess[index(b)]; });
  for (std::size_t i = order.size(); i-- > 0;)
    longest[i] = std::max(components[index(order[i])].length(), i + 1 < order.size() ? longest[i + 1] : 0);
}

Parcels::Parcels(const Workload& all, const PlacementCosts& machine, const PackingWish& wished, std::int64_t tokens)
    : workload(all),
      costs(machine),
      wish(wished),
      share(static_cast<double>(tokens) / machine.ranks),
      light(all.light),
      copies(std::max(1.0, static_cast<double>(wished.groups) / machine.kv_heads)) {}

double Parcels::largest_share() const {
  double largest = 0;
  for (Rank rank = 0; rank < costs.ranks; ++rank) largest = std::max(largest, most_of(rank));
  return largest;
}

std::optional<Packing> pack(const Parcels& parcels, Meshes& meshes, double seconds) {
  return Attempt(parcels, meshes, seconds).run();
}

std::vector<double> Attempt::busy() const {
  std::vector<double> seconds(index(ranks()));
  const int w = costs_.node_size;
  for (Rank first = 0; first < ranks(); first += w) {
    const Rank end = std::min(ranks(), first + w);
    double of_node = 0;
    for (Rank rank = first; rank < end; ++rank) of_node += load_.far[index(rank)];
    for (Rank rank = first; rank < end; ++rank) {
      const double near = std::max(load_.in[index(rank)], load_.out[index(rank)]) / costs_.link().bytes_per_s;
      const double far = costs_.far_seconds(load_.far[index(rank)], of_node);
      seconds[index(rank)] = w > 1 ? std::max(near, far) : near + far;
    }
  }
  return seconds;
}

std::optional<Packing> Attempt::run() {
  if (parcels_.light * parcels_.share > limit_s_ * costs_.mean_speed) return {};
  const Workload& all = parcels_.workload;
  const auto is_short = [&](std::int64_t length) {
    return static_cast<double>(length) <= small_length * parcels_.share;
  };
  std::vector<bool> packed(all.order.size(), false);
  for (std::size_t i = 0; i < all.order.size(); ++i) {
    const int c = all.order[i];
    if (parcels_.excess_of(c) < small_excess * limit_s_) {
      if (is_short(all.longest[i])) break;  // as are all that follow
      if (is_short(parcels_.component(c).length())) continue;
    }
    if (!add(c)) return {};
    packed[index(c)] = true;
  }
  if (!fill(packed)) return {};
  even_out();
  for (Rank rank = 0; rank < ranks(); ++rank) {
    if (load_.seconds[index(rank)] > rounding * budget(rank)) return {};
  }
  for (const double seconds : busy()) {
    if (seconds > limit_s_) return {};
  }
  return std::move(packing_);
}

bool Attempt::add(int component) {
  if (keep_whole(component)) return true;
  const std::optional<Split> apart = split(component);
  const std::optional<Meshed> mesh = share(component, apart ? apart->cost : std::numeric_limits<double>::infinity());
  if (mesh) {
    add_mesh(component, *mesh);
  } else if (apart) {
    add_pieces(component, apart->cuts, false);
  } else if (const std::optional<Cuts> poured = pour(component)) {
    add_pieces(component, *poured, !is_near(*poured));
  } else {
    return false;
  }
  return true;
}

/// On the rank with room for it that has most time left.
bool Attempt::keep_whole(int component) {
  const auto length = static_cast<double>(parcels_.component(component).length());
  Rank best = -1;
  for (Rank rank = 0; rank < ranks(); ++rank) {
    const auto idle = [&](Rank each) { return slack(each) / costs_.speed(each); };
    if (room(rank) >= length && (best < 0 || idle(rank) > idle(best))) best = rank;
  }
  const double work = parcels_.work_of(component);
  if (best < 0 || slack(best) < parcels_.excess_of(component) || work > budget(best)) return false;
  const Component& whole = parcels_.component(component);
  packing_.pieces.push_back({whole.start(), whole.length(), best, component, Piece::Kind::whole, work});
  load_.seconds[index(best)] += work;
  load_.tokens[index(best)] += length;
  return true;
}

void Attempt::add_pieces(int component, const Cuts& cuts, bool far) {
  const std::int64_t start = parcels_.component(component).start();
  std::vector<Rank> owners = cuts.ranks;
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  const bool shared = owners.size() > 1;
  for (std::size_t i = 0; i < cuts.ranks.size(); ++i) {
    const Rank rank = cuts.ranks[i];
    const std::int64_t begin = cuts.ends[i] - cuts.count(i);
    packing_.pieces.push_back({start + begin, cuts.count(i), rank, component,
                               shared ? Piece::Kind::split : Piece::Kind::whole, cuts.seconds[i]});
    load_.seconds[index(rank)] += cuts.seconds[i];
    load_.tokens[index(rank)] += static_cast<double>(cuts.count(i));
    if (far) {
      load_.far[index(rank)] += std::max(cuts.in[i], cuts.out[i]);
    } else {
      load_.in[index(rank)] += cuts.in[i];
      load_.out[index(rank)] += cuts.out[i];
    }
  }
  const auto rows = static_cast<int>(owners.size());
  if (shared) packing_.meshes.push_back({component, {{1, rows, 1}, std::move(owners)}});
}

void Attempt::add_mesh(int component, const Meshed& mesh) {
  const Component& shared = parcels_.component(component);
  const MeshWay& way = *mesh.way;
  const auto owner_of = [&](const Block& block) {
    return mesh.ranks[index(block.place * way.shape.groups + block.group)];
  };
  // Blocks are as long as their owners' shares are large.
  double weights = 0, before = 0;
  for (const Block& block : way.blocks) weights += parcels_.weight(owner_of(block));
  std::int64_t begin = 0;
  for (const Block& block : way.blocks) {
    const Rank owner = owner_of(block);
    before += parcels_.weight(owner);
    const std::int64_t end =
        std::llround(std::floor(static_cast<double>(shared.length()) * before / weights + rounds_up));
    const std::int64_t count = end - std::exchange(begin, end);
    if (count == 0) continue;
    packing_.pieces.push_back({shared.start() + end - count, count, owner, component, Piece::Kind::meshed, 0,
                               parcels_.wish.parts > 1 ? block.part : 0});
    load_.tokens[index(owner)] += static_cast<double>(count);
  }
  for (std::size_t i = 0; i < mesh.ranks.size(); ++i) {
    const Rank rank = mesh.ranks[i];
    load_.seconds[index(rank)] += mesh.seconds[i];
    load_.in[index(rank)] += way.near;
    load_.out[index(rank)] += way.near;
    load_.far[index(rank)] += costs_.far_shared && costs_.node_size > 1 ? way.far_of_all : way.far;
  }
  packing_.meshes.push_back({component, {way.shape, mesh.ranks}});
}

}  // namespace distattn
