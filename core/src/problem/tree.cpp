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

/// The tree with every only child that lies right behind its parent joined to it: nothing else sees the parent's
/// tokens, so what is visible stays the same, and a chain of any length costs what one node does.
std::vector<TreeNode> joined(std::span<const TreeNode> nodes) {
  std::vector<std::int64_t> children(nodes.size());
  for (const TreeNode& node : nodes)
    if (node.parent >= 0) ++children[index(node.parent)];
  std::vector<TreeNode> kept;
  std::vector<std::int64_t> place(nodes.size());  // by node: which of those kept holds it
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const std::int64_t parent = nodes[node].parent;
    const bool is_only_child = parent >= 0 && index(parent) + 1 == node && children[index(parent)] == 1;
    if (is_only_child)
      kept.back().length += nodes[node].length;
    else
      kept.push_back({nodes[node].length, parent < 0 ? -1 : place[index(parent)]});
    place[node] = std::ssize(kept) - 1;
  }
  return kept;
}

/// By node the nodes above it.
std::vector<std::int64_t> depths_of(std::span<const TreeNode> nodes) {
  std::vector<std::int64_t> depths(nodes.size());
  for (std::size_t node = 0; node < nodes.size(); ++node)
    if (nodes[node].parent >= 0) depths[node] = depths[index(nodes[node].parent)] + 1;
  return depths;
}

/// Writes a band for each run of nodes below one. Only the runs of the latest node and of those above it go on; from a
/// node to the next those end that are not above both and those begin that are above the next alone. So the work is
/// that of the bands, however deep the tree is.
class RunBands {
 public:
  explicit RunBands(std::span<const TreeNode> nodes)
      : nodes_(nodes), first_(first_tokens_of(nodes)), depths_(depths_of(nodes)), open_(nodes.size()) {}

  std::vector<Band> write() {
    for (std::int64_t node = 0; node < std::ssize(nodes_); ++node) {
      begin(node, node);
      std::int64_t ending = node - 1, beginning = nodes_[index(node)].parent;
      while (ending != beginning) {
        if (beginning < 0 || (ending >= 0 && depths_[index(ending)] >= depths_[index(beginning)]))
          ending = end(ending, node);
        else
          beginning = begin(beginning, node);
      }
    }
    for (std::int64_t node = std::ssize(nodes_) - 1; node >= 0;) node = end(node, std::ssize(nodes_));
    std::stable_sort(bands_.begin(), bands_.end(), [](const Band& a, const Band& b) { return a.q0 < b.q0; });
    return std::move(bands_);
  }

 private:
  std::int64_t begin(std::int64_t above, std::int64_t node) {
    if (bands_.size() == most_tree_bands) {
      refuse(
          fmt::format("the tree has more than {} bands (nodes below one lie far apart): list each node's descendants "
                      "right behind it",
                      most_tree_bands));
    }
    open_[index(above)] = bands_.size();
    bands_.push_back({first_[index(node)], 0, first_[index(above)], first_[index(above) + 1], 0, unbounded});
    return nodes_[index(above)].parent;
  }
  std::int64_t end(std::int64_t above, std::int64_t node) {
    bands_[open_[index(above)]].q1 = first_[index(node)];
    return nodes_[index(above)].parent;
  }

  std::span<const TreeNode> nodes_;
  std::vector<std::int64_t> first_;   // by node its first token, and behind them their number
  std::vector<std::int64_t> depths_;  // by node
  std::vector<std::size_t> open_;     // by node: the band of its latest run
  std::vector<Band> bands_;
};

}  // namespace

Mask tree_mask(std::span<const TreeNode> nodes) {
  first_tokens_of(nodes);
  Mask mask;
  mask.causal = false;
  mask.explicit_bands = true;
  mask.given = RunBands(joined(nodes)).write();
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
