#pragma once
/// Trees of tokens: prefixes that several continuations share, as samples of one prompt or drafts of a decoder do.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distattn/mask.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// A run of tokens. The nodes of a tree lie one after the other in the sequence, each behind its parent.
struct TreeNode {
  std::int64_t length = 0;   ///< tokens, 1 or more
  std::int64_t parent = -1;  ///< index of an earlier node; −1: a root, of which there may be several
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

/// Each token sees the tokens of its node up to itself and all tokens of the nodes above. A node costs a band for each
/// run of nodes below it that follow each other: one, if every node is followed by all that are below it, and none if
/// it is an only child right behind its parent, whose band goes on. O(nodes + bands log bands). Throws Error(usage) for
/// an empty list, a node without tokens, a parent that is not an earlier node, and more tokens or bands than a problem
/// may have.
Mask tree_mask(std::span<const TreeNode> nodes);

/// For each token the number of tokens that it sees besides itself: its position on the path from the root, as rotary
/// embeddings need it. Layouts and queries count tokens by their place in the sequence. Throws as tree_mask() does.
std::vector<std::int64_t> tree_positions(std::span<const TreeNode> nodes);

/// Nodes as users write them in a file, null or -1 for no parent: [{"length":512,"parent":null},{"length":64,
/// "parent":0}]. Throws Error(usage), naming `origin`, for text that is no such list.
std::vector<TreeNode> tree_from_json(std::string_view text, const std::string& origin);

}  // namespace distattn
#pragma GCC visibility pop
