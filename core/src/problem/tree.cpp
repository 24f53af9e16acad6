#include "distattn/tree.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "core/src/json_fields.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Positions of a sequence have 32 bits; a mask of more bands than this is refused before it is built.
constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t most_tree_bands = std::size_t{1} << 24;

/// Whether the way up from a node comes back to a node that it has passed.
bool ends_in_cycle(std::span<const TreeNode> nodes, std::int64_t node) {
  for (std::size_t steps = 0; steps <= nodes.size(); ++steps) {
    if (node < 0 || node >= std::ssize(nodes)) return false;
    node = nodes[index(node)].parent;
  }
  return true;
}

void check_parent(std::span<const TreeNode> nodes, std::int64_t node) {
  const std::int64_t parent = nodes[index(node)].parent;
  if (-1 <= parent && parent < node) return;
  if (parent < -1 || parent >= std::ssize(nodes)) {
    refuse(fmt::format("node {} of the tree has parent {} (the nodes are 0 to {}, and -1 is none): name one of them",
                       node, parent, std::ssize(nodes) - 1));
  }
  if (ends_in_cycle(nodes, node)) {
    refuse(fmt::format("node {} of the tree has parent {} (a cycle: its way up ends at no root): name another parent",
                       node, parent));
  }
  refuse(fmt::format("node {} of the tree has parent {} (which comes later): list parents first", node, parent));
}

/// The first token of each node, and behind them their number.
std::vector<std::int64_t> first_tokens_of(std::span<const TreeNode> nodes) {
  if (nodes.empty()) refuse("the tree has no node (a tree has at least one): list one");
  std::vector<std::int64_t> first = {0};
  for (std::int64_t node = 0; node < std::ssize(nodes); ++node) {
    const std::int64_t length = nodes[index(node)].length;
    if (length < 1) {
      refuse(fmt::format("node {} of the tree has {} tokens (a node has at least one): leave it out, or give 1 or more",
                         node, length));
    }
    check_parent(nodes, node);
    if (length > most_tokens - first.back()) {
      refuse(fmt::format("the tree has more than {} tokens (a sequence has no more): shorten its nodes", most_tokens));
    }
    first.push_back(first.back() + length);
  }
  return first;
}

}  // namespace

Mask tree_mask(std::span<const TreeNode> nodes) {
  const std::vector<std::int64_t> first = first_tokens_of(nodes);
  std::vector<Band> bands;
  std::vector<std::size_t> latest(nodes.size());  // by node: the band of the last run of nodes below it
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    latest[node] = bands.size();
    bands.push_back({first[node], first[node + 1], first[node], first[node + 1], 0, unbounded});
    for (std::int64_t above = nodes[node].parent; above >= 0; above = nodes[index(above)].parent) {
      Band& run = bands[latest[index(above)]];
      if (run.q1 == first[node]) {
        run.q1 = first[node + 1];
        continue;
      }
      if (bands.size() == most_tree_bands) {
        refuse(
            fmt::format("the tree has more than {} bands (nodes below one lie far apart): list each node's "
                        "descendants right behind it",
                        most_tree_bands));
      }
      latest[index(above)] = bands.size();
      bands.push_back({first[node], first[node + 1], first[index(above)], first[index(above) + 1], 0, unbounded});
    }
  }
  std::stable_sort(bands.begin(), bands.end(), [](const Band& a, const Band& b) { return a.q0 < b.q0; });
  Mask mask;
  mask.causal = false;
  mask.explicit_bands = true;
  mask.given = std::move(bands);
  mask.name = fmt::format("tree of {}", nodes.size());
  return mask;
}

std::vector<std::int64_t> tree_positions(std::span<const TreeNode> nodes) {
  const std::vector<std::int64_t> first = first_tokens_of(nodes);
  std::vector<std::int64_t> begins(nodes.size()), positions;
  positions.reserve(index(first.back()));
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const std::int64_t parent = nodes[node].parent;
    if (parent >= 0) begins[node] = begins[index(parent)] + nodes[index(parent)].length;
    for (std::int64_t i = 0; i < nodes[node].length; ++i) positions.push_back(begins[node] + i);
  }
  return positions;
}

std::vector<TreeNode> tree_from_json(std::string_view text, const std::string& origin) {
  const nlohmann::json list = parse_json(text, origin);
  if (!list.is_array()) {
    refuse(
        fmt::format("{} is no list of nodes (a tree's file holds one): write [{{\"length\":512,\"parent\":null}},"
                    "{{\"length\":64,\"parent\":0}}]",
                    origin));
  }
  std::vector<TreeNode> nodes;
  for (const nlohmann::json& object : list) {
    JsonFields fields(object, origin, fmt::format("[{}]", nodes.size()));
    TreeNode node{fields.integer("length", 1, unbounded), -1};
    const nlohmann::json* const parent = fields.find("parent");
    if (parent != nullptr && !parent->is_null()) node.parent = fields.integer("parent", -1, unbounded);
    fields.finish();
    nodes.push_back(node);
  }
  return nodes;
}

}  // namespace distattn
