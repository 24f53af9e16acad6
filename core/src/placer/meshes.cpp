#include "core/src/placer/meshes.hpp"

#include <algorithm>
#include <cmath>

#include "distattn/index.hpp"

namespace distattn {
namespace {

constexpr int row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64};
constexpr int column_counts[] = {1, 2, 4, 8, 16};
/// Blocks that are this long compute at a good rate: splitting them further only costs messages.
constexpr std::int64_t long_block = 4096;
/// A rank's part of a component is no shorter.
constexpr double least_share = static_cast<double>(coarsest_grain);

std::vector<MeshShape> shapes_of(const PlacementCosts& costs, int groups) {
  std::vector<MeshShape> shapes;
  for (int u = 1; u <= std::min(groups, costs.ranks); ++u) {
    if (groups % u != 0) continue;
    for (const int rows : row_counts) {
      for (const int columns : column_counts) {
        const MeshShape shape{u, rows, columns};
        const int ranks = shape.ranks();
        const bool whole_nodes = ranks <= costs.node_size || ranks % costs.node_size == 0;
        if (ranks > 1 && ranks <= costs.ranks && whole_nodes) shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

/// How many times as long as a block the side of a launch is: a step has a place's blocks against those of a place,
/// about half of which are live.
double times_in_launch(const MeshWay& way) {
  return (static_cast<double>(way.blocks.size()) / (way.shape.rows * way.shape.columns) + 1) / 2;
}

}  // namespace

std::int64_t block_begin(std::int64_t length, std::size_t block, std::size_t blocks) {
  return length * static_cast<std::int64_t>(block) / static_cast<std::int64_t>(blocks);
}

Meshes::Meshes(const PlacementCosts& costs, int groups, int parts, double most_tokens, Travel travel)
    : costs_(costs),
      groups_(groups),
      parts_(parts),
      most_tokens_(most_tokens),
      travel_(travel),
      shapes_(shapes_of(costs, groups)) {}

const std::vector<MeshWay>& Meshes::of(const Component& component) {
  const auto key = std::pair(component.length(), component.causal() ? -1 : component.start());
  const auto found = ways_.find(key);
  return found != ways_.end() ? found->second : ways_.emplace(key, make(component)).first->second;
}

/// `owners` of a place's head ranks own parts of a block. Places go there and back over the component, so that each has
/// early and late positions; where a place has an even number of head ranks, half of them own on the way there.
std::vector<Block> Meshes::blocks_of(const MeshShape& shape, int owners) const {
  const int places = shape.rows * shape.columns;
  const int turns = parts_ > 1 ? parts_ : places > 1 ? 2 : 1;
  const bool halves = parts_ == 1 && places > 1 && shape.groups % 2 == 0;
  const int wide = halves ? shape.groups / 2 : shape.groups;
  std::vector<Block> blocks;
  for (int turn = 0; turn < turns; ++turn) {
    for (int b = 0; b < places; ++b) {
      const int place = turn % 2 == 0 ? b : places - 1 - b;
      for (int v = 0; v < owners; ++v)
        blocks.push_back({place, v * (wide / owners) + (halves && turn == 1 ? wide : 0), turn});
    }
  }
  return blocks;
}

std::vector<MeshWay> Meshes::make(const Component& component) const {
  std::vector<MeshWay> ways;
  const auto length = static_cast<double>(component.length());
  for (const MeshShape& shape : shapes_) {
    const double share = length / shape.ranks();
    if (share > most_tokens_ || share < least_share) continue;
    const bool halves = parts_ == 1 && shape.rows * shape.columns > 1 && shape.groups % 2 == 0;
    for (int owners = halves ? shape.groups / 2 : shape.groups;; owners /= 2) {
      ways.push_back(way(component, shape, blocks_of(shape, owners)));
      const auto blocks = static_cast<std::int64_t>(ways.back().blocks.size());
      const bool too_many = ways.back().tokens > most_tokens_;
      if (too_many) ways.pop_back();
      if (too_many || component.length() / blocks >= long_block || parts_ > 1 || owners % 2 != 0) break;
    }
  }
  std::stable_sort(ways.begin(), ways.end(), [](const MeshWay& a, const MeshWay& b) {
    return std::pair(a.cost, a.ranks()) < std::pair(b.cost, b.ranks());
  });
  return ways;
}

MeshWay Meshes::way(const Component& component, const MeshShape& shape, std::vector<Block> blocks) const {
  MeshWay way;
  way.shape = shape;
  way.blocks = std::move(blocks);
  const int ranks = way.ranks();
  const double side = static_cast<double>(component.length()) / static_cast<double>(way.blocks.size());
  std::vector<int> owned(index(ranks), 0);
  for (const Block& block : way.blocks) ++owned[index(block.place * shape.groups + block.group)];
  way.tokens = side * *std::max_element(owned.begin(), owned.end());
  if (component.causal()) {
    const auto blocks_count = static_cast<double>(way.blocks.size());
    const double times = times_in_launch(way);
    way.seconds = (blocks_count * (blocks_count - 1) / 2 * costs_.tile(side * side, side, side, times) +
                   blocks_count * costs_.tile(side * (side + 1) / 2, side, side, times)) /
                  ranks;
  } else {
    way.seconds = busiest(component, way);
  }
  count_bytes(component, way);
  const double alone =
      costs_.tile(component.pairs(), static_cast<double>(component.length()), static_cast<double>(component.length()));
  way.cost = way.seconds * ranks - alone + ranks * (way.near_s + way.far_s);
  return way;
}

/// Seconds of the rank that computes most, tile by tile.
double Meshes::busiest(const Component& component, const MeshWay& way) const {
  const MeshShape& shape = way.shape;
  std::vector<double> load(index(shape.rows * shape.columns), 0);
  const std::size_t count = way.blocks.size();
  const double times = times_in_launch(way);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t a = block_begin(component.length(), i, count);
    const std::int64_t n = block_begin(component.length(), i + 1, count) - a;
    for (std::size_t j = 0; j < count; ++j) {
      const std::int64_t b = block_begin(component.length(), j, count);
      const std::int64_t m = block_begin(component.length(), j + 1, count) - b;
      const int row = way.blocks[i].place % shape.rows, column = way.blocks[j].place / shape.rows;
      load[index(row + shape.rows * column)] +=
          costs_.tile(component.pairs(a, n, b, m), static_cast<double>(n), static_cast<double>(m), times);
    }
  }
  return *std::max_element(load.begin(), load.end()) / shape.groups;
}

/// A rank receives the queries of its row and the keys of its column, for its heads, and sends as much back as results.
void Meshes::count_bytes(const Component& component, MeshWay& way) const {
  const int groups = way.shape.groups, rows = way.shape.rows, columns = way.shape.columns;
  // The share of the key heads that a rank's heads use; groups that share one receive it once each.
  const double of_keys =
      static_cast<double>(groups_) / groups * std::max(1.0, 1.0 * costs_.kv_heads / groups_) / costs_.kv_heads;
  const double of_query = costs_.bytes.query + costs_.bytes.output;
  const double of_key = (costs_.bytes.key_value + costs_.bytes.dkey_value) * of_keys;
  const auto bytes = [&](double query_places, double key_ranks) {
    return way.tokens * ((query_places - 1) / groups * of_query + (key_ranks - 1) * of_key);
  };
  const double all = bytes(1.0 * groups * columns, 1.0 * groups * rows);
  const int w = costs_.node_size;
  if (w == 1) {
    way.far = all;
  } else if (way.ranks() > w) {
    const int groups_inside = std::min(groups, w);
    const int rows_inside = std::min(rows, std::max(1, w / groups_inside));
    const int columns_inside = std::max(1, w / (groups_inside * rows_inside));
    if (travel_ == Travel::routed) {
      // A node needs the queries of its rows and the keys of its columns, for the heads of its ranks.
      const double owned = 1.0 * w / way.ranks(), queries = 1.0 * rows_inside / rows;
      const double keys = 1.0 * std::min(columns, columns_inside) / columns;
      const double of_key_all = costs_.bytes.key_value + costs_.bytes.dkey_value;
      const double of_token = std::max(0.0, queries - owned) * of_query + std::max(0.0, keys - owned) * of_key_all;
      way.far = way.tokens * way.ranks() * groups_inside / groups * of_token / w;
    } else {
      way.far = all - bytes(1.0 * groups_inside * std::min(columns, columns_inside), 1.0 * groups_inside * rows_inside);
    }
  }
  way.near = all - way.far;
  way.far_of_all = way.far * (static_cast<double>(component.length()) / way.ranks()) / std::max(way.tokens, 1e-9);
  way.near_s = way.near / costs_.near.bytes_per_s;
  way.far_s = costs_.far_seconds(way.far, way.far_of_all * w);
  const double merged = way.tokens * ((1.0 * groups * columns - 1) / groups * costs_.bytes.output +
                                      (1.0 * groups * rows - 1) * of_keys * costs_.bytes.dkey_value);
  way.seconds += costs_.merge(merged);
}

}  // namespace distattn
