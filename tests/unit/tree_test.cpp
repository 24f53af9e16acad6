#include "distattn/tree.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "support/masks.hpp"

using namespace distattn;

namespace {

std::vector<TreeNode> random_tree(test::Random& random, int count) {
  std::vector<TreeNode> nodes;
  for (int node = 0; node < count; ++node) {
    nodes.push_back({random.between(1, 6), random.one_in(6) ? -1 : random.between(-1, node - 1)});
  }
  return nodes;
}

/// The node of each token.
std::vector<std::int64_t> owners(const std::vector<TreeNode>& nodes) {
  std::vector<std::int64_t> all;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    all.insert(all.end(), static_cast<std::size_t>(nodes[node].length), static_cast<std::int64_t>(node));
  }
  return all;
}

bool is_above(const std::vector<TreeNode>& nodes, std::int64_t above, std::int64_t node) {
  while (node >= 0 && node != above) node = nodes[static_cast<std::size_t>(node)].parent;
  return node == above;
}

void require_refused_tree(const std::vector<TreeNode>& nodes, const std::string& words) {
  REQUIRE_THROWS_WITH(tree_mask(nodes), contains_text(words));
  REQUIRE_THROWS_WITH(tree_positions(nodes), contains_text(words));
}

}  // namespace

TEST_CASE("every token of a tree sees its node up to itself and all nodes above, once") {
  INFO("seed " << test::seed());
  test::Random random(test::seed());
  for (int n = 0; n < 60; ++n) {
    const std::vector<TreeNode> nodes = random_tree(random, static_cast<int>(random.between(1, 14)));
    const std::vector<std::int64_t> node_of = owners(nodes);
    const Mask mask = tree_mask(nodes);
    const auto tokens = static_cast<std::int64_t>(node_of.size());
    check(mask, tokens);
    const std::vector<std::int64_t> positions = tree_positions(nodes);
    REQUIRE(positions.size() == node_of.size());
    for (std::int64_t q = 0; q < tokens; ++q) {
      std::int64_t seen = 0;
      for (std::int64_t k = 0; k < tokens; ++k) {
        const bool expected =
            k <= q && is_above(nodes, node_of[static_cast<std::size_t>(k)], node_of[static_cast<std::size_t>(q)]);
        const auto count =
            std::count_if(mask.given.begin(), mask.given.end(), [&](const Band& band) { return band.holds(q, k); });
        if (count != (expected ? 1 : 0)) FAIL("q " << q << " k " << k << " lies in " << count << " bands");
        seen += expected ? 1 : 0;
      }
      REQUIRE(positions[static_cast<std::size_t>(q)] == seen - 1);
    }
  }
}

TEST_CASE("a tree whose nodes are followed by all that are below them has a band a node") {
  std::vector<TreeNode> nodes = {{100, -1}};
  for (int branch = 0; branch < 1000; ++branch) {
    const std::int64_t first = static_cast<std::int64_t>(nodes.size());
    nodes.push_back({7, 0});
    nodes.push_back({3, first});
    nodes.push_back({5, first});
  }
  CHECK(tree_mask(nodes).given.size() == nodes.size());
}

TEST_CASE("an only child right behind its parent costs no band of its own") {
  const auto bands = [](const std::vector<TreeNode>& nodes) { return tree_mask(nodes).given; };
  CHECK(bands({{5, -1}, {3, 0}, {4, 1}}) == std::vector<Band>{{0, 12, 0, 12, 0, unbounded}});
  CHECK(bands({{5, -1}, {3, -1}, {4, 1}}).size() == 2);
  CHECK(bands({{5, -1}, {3, 0}, {4, 0}, {2, 2}}).size() == 3);
  CHECK(bands({{5, -1}, {3, -1}, {4, 0}}).size() == 4);  // not right behind: 0 to 4, and 8 to 11 again
  std::vector<TreeNode> chain = {{1, -1}};
  while (chain.size() < 200'000) chain.push_back({1, std::ssize(chain) - 1});
  CHECK(bands(chain) == std::vector<Band>{{0, 200'000, 0, 200'000, 0, unbounded}});
  CHECK(tree_mask(chain).name == "tree of 200000");
}

TEST_CASE("a deep tree costs its bands, not its nodes times its depth") {
  std::vector<TreeNode> comb = {{1, -1}};  // each node of the spine has a leaf, and behind it the spine goes on
  while (comb.size() < 200'000) {
    const std::int64_t spine = std::ssize(comb) - 1;
    comb.push_back({2, spine});
    comb.push_back({1, spine});
  }
  CHECK(tree_mask(comb).given.size() == comb.size());
}

TEST_CASE("a tree that is none is refused") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  require_refused_tree({}, "the tree has no node");
  require_refused_tree({{0, -1}}, "node 0 of the tree has 0 tokens");
  require_refused_tree({{3, -1}, {-2, 0}}, "node 1 of the tree has -2 tokens");
  require_refused_tree({{3, 0}}, "a cycle");
  require_refused_tree({{3, 1}, {3, 2}, {3, 0}}, "a cycle");
  require_refused_tree({{3, -1}, {3, 2}, {3, 0}}, "node 1 of the tree has parent 2 (which comes later)");
  require_refused_tree({{3, -1}, {3, 7}}, "node 1 of the tree has parent 7 (the nodes are 0 to 1");
  require_refused_tree({{3, -2}}, "has parent -2");
  require_refused_tree({{1, -1}, {most, 0}}, "more than 2147483647 tokens");
  require_refused_tree({{2147483647, -1}, {1, 0}}, "more than 2147483647 tokens");
}

TEST_CASE("trees are read from files") {
  CHECK(tree_from_json(R"([{"length":5,"parent":null},{"length":2,"parent":0},{"parent":-1,"length":1},{"length":3}])",
                       "t") == std::vector<TreeNode>{{5, -1}, {2, 0}, {1, -1}, {3, -1}});
  for (const char* text : {"{}", "[5]", R"([{"parent":0}])", R"([{"length":2.5}])", R"([{"length":"2"}])",
                           R"([{"length":2,"parent":"0"}])", R"([{"length":2,"depth":0}])", R"([{"length":0}])",
                           R"([{"length":99999999999999999999}])", "[", R"([{"length":1,"parent":-5}])"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(tree_from_json(text, "the file"), contains_text("the file"));
  }
}
