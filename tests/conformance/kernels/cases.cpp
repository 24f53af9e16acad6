#include <array>
#include <cmath>
#include <random>
#include <string_view>

#include "conformance/kernels/suite.hpp"
#include "distattn/tree.hpp"
#include "support/sanitized.hpp"

namespace distattn::test {

namespace {

constexpr Band everything{};
constexpr Band causal{.lo = 0};

kernels::TileShape shape(int heads, int kv_heads, int head_dim, int value_dim, DType dtype = DType::fp32,
                         std::int64_t batch = 1) {
  return {dtype, batch, {heads, kv_heads, 0, 0, heads / kv_heads}, head_dim, value_dim, {1 / std::sqrt(head_dim)}};
}

TileCase single(std::string name, kernels::TileShape of, Run queries, Run keys, std::vector<Band> bands) {
  return {std::move(name), of, queries, {{keys, std::move(bands)}}};
}

void add_masks(std::vector<TileCase>& cases) {
  const auto with = [&](std::string name, std::vector<Band> bands) {
    cases.push_back(single(name, shape(2, 1, 32, 32), {0, 300, 1}, {0, 300, 1}, bands));
    cases.push_back(single(name + ", fewer queries", shape(2, 1, 32, 32), {200, 100, 1}, {0, 300, 1}, bands));
  };
  with("full", {everything});
  with("nothing visible", {});
  with("causal", {causal});
  with("window", {{.lo = 0, .hi = 37}});
  with("window both ways", {{.lo = -20, .hi = 37}});
  with("window and sinks", {{.k0 = 0, .k1 = 5, .lo = 0}, {.k0 = 5, .lo = 0, .hi = 50}});
  with("prefix", {{.k0 = 0, .k1 = 70}, {.k0 = 70, .lo = 0}});
  with("one diagonal", {{.lo = 10, .hi = 10}});
  with("a rectangle", {{.q0 = 210, .q1 = 290, .k0 = 13, .k1 = 170}});
  std::vector<Band> documents;
  for (std::int64_t start : {0, 1, 3, 40, 41, 130, 260}) {
    const std::int64_t length = start == 0     ? 1
                                : start == 1   ? 2
                                : start == 3   ? 37
                                : start == 40  ? 1
                                : start == 41  ? 89
                                : start == 130 ? 130
                                               : 40;
    documents.push_back({start, start + length, start, start + length, 0, unbounded});
  }
  with("documents", documents);
  cases.push_back(single("documents, striped", shape(2, 1, 32, 32), {1, 75, 4}, {2, 100, 3}, documents));
  documents.push_back({.q0 = 60, .q1 = 250, .k0 = 0, .k1 = 3});
  with("documents and what some of them share", documents);
  with("bands that change places", {{.q0 = 0, .q1 = 97, .k0 = 200, .k1 = 300},
                                    {.q0 = 97, .q1 = 240, .k0 = 20, .k1 = 150},
                                    {.q0 = 230, .k0 = 150, .k1 = 155},
                                    {.q0 = 270, .k0 = 0, .k1 = 20}});
}

/// Nodes of which every other one comes long after its parent: a query sees few keys, far from each other and from
/// those of its neighbours.
void add_trees(std::vector<TileCase>& cases) {
  std::mt19937 random(41);
  std::vector<TreeNode> nodes = {{70, -1}};
  while (nodes.size() < 400) {
    const auto count = static_cast<int>(nodes.size());
    nodes.push_back({1 + count % 3, std::uniform_int_distribution(0, count - 1)(random)});
  }
  const std::vector<Band> bands = tree_mask(nodes).given;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const std::string name = std::string("tree in any order ") + name_of(dtype);
    cases.push_back(single(name, shape(2, 1, 16, 24, dtype), {0, 868, 1}, {0, 868, 1}, bands));
    cases.back().carry = dtype == DType::bf16;
    cases.push_back(single(name + ", few queries", shape(2, 1, 16, 24, dtype), {860, 8, 1}, {0, 868, 1}, bands));
  }
  cases.push_back(single("tree in any order, striped", shape(2, 1, 16, 24), {1, 217, 4}, {3, 216, 4}, bands));
}

void add_positions(std::vector<TileCase>& cases) {
  const auto small = shape(2, 2, 16, 16);
  cases.push_back(single("striped", small, {3, 150, 4}, {1, 150, 4}, {causal}));
  cases.push_back(single("queries striped, keys dense", small, {3, 100, 5}, {0, 400, 1}, {{.lo = 0, .hi = 90}}));
  cases.push_back(single("queries dense, keys striped", small, {0, 400, 1}, {2, 80, 5}, {causal}));
  cases.push_back(single("coprime strides", small, {-50, 130, 3}, {7, 90, 7}, {{.lo = -3, .hi = 200}}));
  cases.push_back(single("negative positions", small, {-64, 128, 1}, {0, 64, 1}, {causal}));
  cases.push_back(
      single("far away", small, {std::int64_t{1} << 40, 70, 1}, {(std::int64_t{1} << 40) - 30, 70, 1}, {causal}));
  for (std::int64_t length : {1, 2, 7, 8, 9, 23, 47, 48, 49, 127, 128, 129, 143, 145, 257, 577}) {
    cases.push_back(single("length " + std::to_string(length), small, {0, length, 1}, {0, length, 1}, {causal}));
    cases.push_back(
        single("one query, keys " + std::to_string(length), small, {length - 1, 1, 1}, {0, length, 1}, {causal}));
  }
  cases.push_back(single("many queries", small, {0, 2700, 1}, {0, 40, 1}, {{.hi = 2600}}));
  cases.push_back(single("many queries of one key head", shape(6, 1, 8, 8), {0, 600, 1}, {0, 150, 1}, {causal}));
  cases.push_back(
      single("more queries than blocks are", shape(1, 1, 8, 8), {0, 74000, 1}, {500, 5, 1}, {{.lo = 0, .hi = 60000}}));
  cases.push_back(single("many keys", shape(4, 4, 16, 16), {900, 200, 1}, {0, 1300, 1}, {causal}));
  cases.push_back(single("many keys, window", shape(4, 4, 16, 16), {0, 1300, 1}, {0, 1300, 1}, {{.lo = 0, .hi = 300}}));
  cases.push_back(single("very many keys", shape(1, 1, 16, 16), {16970, 30, 1}, {0, 17000, 1}, {causal}));
  // Rows that begin and end with other keys, and so have other sums.
  cases.push_back(
      single("very many keys, window", shape(1, 1, 16, 16), {-300, 70, 301}, {0, 20000, 1}, {{.lo = 0, .hi = 17000}}));
  cases.push_back(single("no queries", small, {5, 0, 1}, {0, 40, 1}, {causal}));
  cases.push_back(single("no keys", small, {5, 40, 1}, {0, 0, 1}, {causal}));
}

void add_shapes(std::vector<TileCase>& cases) {
  for (int dim : {8, 16, 24, 40, 64, 72, 80, 96, 128, 136, 192, 256}) {
    cases.push_back(
        single("head_dim " + std::to_string(dim), shape(1, 1, dim, dim), {0, 150, 1}, {0, 150, 1}, {causal}));
  }
  cases.push_back(single("head_dim 192, value_dim 128", shape(2, 1, 192, 128), {0, 90, 1}, {0, 150, 1}, {everything}));
  cases.push_back(single("head_dim 24, value_dim 200", shape(2, 1, 24, 200), {0, 90, 1}, {0, 150, 1}, {causal}));
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const std::string name = std::string("head_dim 576, value_dim 512 ") + name_of(dtype);
    cases.push_back(single(name, shape(3, 1, 576, 512, dtype), {0, 90, 1}, {0, 150, 1}, {causal}));
    cases.push_back(single(name + ", few queries", shape(3, 1, 576, 512, dtype), {147, 2, 1}, {0, 150, 1}, {causal}));
  }
  cases.push_back(single("8 query heads a key head", shape(8, 1, 32, 32), {0, 70, 1}, {0, 70, 1}, {causal}));
  cases.push_back(single("batch 3", shape(4, 2, 32, 32, DType::fp32, 3), {0, 70, 1}, {0, 70, 1}, {causal}));
  auto uneven = shape(1, 1, 32, 32);
  uneven.heads = {5, 3, 3, 1, 2};  // query heads 3 … 7 of a problem with 2 a key head: key heads 1, 2, 2, 3, 3
  cases.push_back(single("uneven head group", uneven, {0, 100, 1}, {0, 100, 1}, {causal}));
  for (DType dtype : {DType::bf16, DType::fp16, DType::fp64}) {
    cases.push_back(single(std::string("element type ") + name_of(dtype), shape(2, 1, 64, 48, dtype), {0, 200, 1},
                           {0, 200, 1}, {causal}));
  }
  auto negative = shape(1, 1, 32, 32);
  negative.scores.scale = -0.3;
  cases.push_back(single("negative scale", negative, {0, 100, 1}, {0, 100, 1}, {causal}));
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64}) {
    auto capped = shape(4, 2, 40, 24, dtype);
    for (const double cap : {0.5, 3.0, 50.0}) {
      capped.scores.softcap = cap;
      const std::string name = "capped at " + std::to_string(cap) + " " + name_of(dtype);
      cases.push_back(single(name, capped, {0, 150, 1}, {0, 150, 1}, {causal}));
      cases.push_back(single(name + ", few queries", capped, {146, 3, 1}, {0, 150, 1}, {causal}));
    }
  }
}

/// Biases of segments with strides, in both orders, alone and with a cap.
void add_biases(std::vector<TileCase>& cases) {
  static constexpr std::array slopes = {0.5, -0.03, 0.0, 1.0 / 256};
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64}) {
    for (const double cap : {0.0, 2.0}) {
      auto biased = shape(4, 2, 24, 40, dtype, 2);
      biased.alibi_slopes = slopes.data();
      biased.scores.softcap = cap;
      const std::string name = std::string("bias ") + name_of(dtype) + (cap > 0 ? " and cap" : "");
      cases.push_back(single(name, biased, {40, 150, 1}, {7, 200, 1}, {causal}));
      cases.push_back(single(name + ", striped", biased, {3, 150, 4}, {1, 160, 3}, {{.lo = -100, .hi = 300}}));
      cases.push_back(single(name + ", few queries", biased, {500, 3, 2}, {1, 170, 3}, {causal}));
      cases.push_back(single(name + ", far positions", biased, {2147483000, 100, 1}, {2147482950, 150, 1}, {causal}));
    }
  }
}

/// Keys that draw in fours from the first one on, that begin between two fours, and that draw each for itself.
void add_dropout(std::vector<TileCase>& cases) {
  static constexpr kernels::Dropout draws{.probability = 0.3, .seed = 0x123456789abcdef, .offset = 7, .heads = 4};
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64}) {
    auto dropped = shape(4, 2, 24, 40, dtype, 2);
    dropped.dropout = &draws;
    const std::string name = std::string("dropout ") + name_of(dtype);
    cases.push_back(single(name, dropped, {40, 150, 1}, {8, 200, 1}, {causal}));
    cases.push_back(single(name + ", between fours", dropped, {40, 150, 1}, {7, 330, 1}, {{.lo = -300}}));
    cases.push_back(single(name + ", striped", dropped, {3, 150, 4}, {1, 160, 3}, {{.lo = -100, .hi = 300}}));
    cases.push_back(single(name + ", few queries", dropped, {500, 3, 2}, {1, 170, 3}, {causal}));
  }
}

/// The cases whose names begin so, once more from a partial.
void add_carried(std::vector<TileCase>& cases, std::string_view beginning) {
  for (std::size_t i = 0, count = cases.size(); i < count; ++i) {
    if (!cases[i].name.starts_with(beginning)) continue;
    cases.push_back(cases[i]);
    cases.back().name += ", carried";
    cases.back().carry = true;
  }
}

/// As few queries as tokens that are decoded: their keys are cut into pieces.
void add_few(std::vector<TileCase>& cases) {
  const Run few{8996, 4, 1}, keys{0, 9000, 1};
  cases.push_back(single("few queries, many keys", shape(12, 2, 24, 40), few, keys, {causal}));
  cases.push_back(single("few queries of very many heads", shape(45, 1, 8, 8), {2000, 3, 1}, {0, 2100, 1}, {causal}));
  cases.push_back(
      single("few queries, more keys than pieces", shape(1, 1, 8, 8), {0, 1, 1}, {0, 70001, 1}, {everything}));
  cases.push_back(single("few queries of several key heads by turns", shape(24, 12, 20, 36), {2997, 3, 1}, {0, 3003, 1},
                         {{.lo = 0, .hi = 2500}}));
  // Two threads take three blocks at once, two of them of one key head. The third lies where it would if all three were
  // side by side.
  cases.push_back(single("few queries, two blocks of a key head beside one of the next",
                         shape(24, 3, 16, 16, DType::fp32, 4), {0, 7, 1}, {0, 2, 1}, {everything}));
  cases.push_back(single("few queries, window and sinks", shape(4, 1, 16, 16), few, keys,
                         {{.k0 = 0, .k1 = 5, .lo = 0}, {.k0 = 5, .lo = 0, .hi = 3000}}));
  cases.push_back(single("few queries that see nothing in common", shape(2, 1, 16, 16), {0, 3, 3000}, keys,
                         {{.lo = -1500, .hi = 20}}));
  cases.push_back(single("few queries, some without a key", shape(2, 1, 16, 16), {-2, 4, 1}, keys, {causal}));
  cases.push_back(single("few queries, striped", shape(2, 1, 16, 16), {5, 4, 2000}, {3, 2100, 4}, {causal}));
  for (DType dtype : {DType::bf16, DType::fp16}) {
    cases.push_back(single(std::string("few queries in ") + name_of(dtype), shape(8, 2, 64, 24, dtype, 2), {2000, 2, 1},
                           {0, 2500, 1}, {causal}));
  }
  TileCase several{"few queries, several key segments", shape(4, 2, 24, 24), {3000, 5, 1}, {}};
  several.sides = {{{0, 1500, 1}, {everything}}, {{1500, 20, 1}, {}}, {{1520, 1700, 1}, {{.lo = 0, .hi = 1450}}}};
  cases.push_back(several);
  add_biases(cases);
  add_dropout(cases);
  add_carried(cases, "bias");
  add_carried(cases, "dropout");
  add_carried(cases, "few queries");
}

/// Query heads of one key head whose rows fit one block: how many are done together depends on the number of threads.
void add_heads_together(std::vector<TileCase>& cases) {
  cases.push_back(single("heads together", shape(16, 2, 24, 40), {0, 50, 1}, {0, 300, 1}, {{.lo = 0, .hi = 40}}));
  cases.push_back(single("heads together, long sums", shape(16, 2, 16, 16), {8900, 40, 2}, {0, 9000, 1}, {causal}));
  cases.push_back(
      single("heads together in bf16", shape(16, 1, 64, 24, DType::bf16, 2), {100, 33, 1}, {0, 200, 1}, {everything}));
  auto uneven = shape(1, 1, 32, 32, DType::fp32, 3);
  uneven.heads = {5, 3, 3, 1, 2};
  cases.push_back(single("heads together, uneven group", uneven, {-10, 30, 1}, {0, 100, 1}, {causal}));
  TileCase several{"heads together, several key segments", shape(24, 2, 16, 16), {100, 60, 1}, {}};
  several.sides = {{{0, 130, 1}, {causal}}, {{130, 20, 1}, {}}, {{50, 33, 3}, {{.k0 = 120, .lo = 0}}}};
  cases.push_back(several);
  add_carried(cases, "heads together");
}

void add_sides(std::vector<TileCase>& cases) {
  TileCase several{"several key segments", shape(4, 2, 64, 64), {100, 200, 1}, {}};
  several.sides = {{{0, 100, 1}, {everything}},
                   {{100, 200, 1}, {causal}},
                   {{300, 50, 1}, {}},
                   {{50, 33, 3}, {{.k0 = 120, .lo = 0}}}};
  cases.push_back(several);
  several.name = "several key segments, carried";
  several.carry = true;
  cases.push_back(several);
  for (const char* name :
       {"window", "causal", "documents", "very many keys", "very many keys, window", "no keys", "nothing visible"}) {
    for (std::size_t i = 0, count = cases.size(); i < count; ++i) {
      if (cases[i].name != name) continue;
      cases.push_back(cases[i]);
      cases.back().name += ", carried";
      cases.back().carry = true;
    }
  }
}

}  // namespace

std::vector<TileCase> named_cases() {
  std::vector<TileCase> cases;
  add_masks(cases);
  add_trees(cases);
  add_positions(cases);
  add_shapes(cases);
  add_sides(cases);
  add_few(cases);
  add_heads_together(cases);
  return cases_to_run(std::move(cases), 24);
}

std::vector<TileCase> random_cases(unsigned seed, int count) {
  std::vector<TileCase> cases;
  for (int i = 0; i < count; ++i) {
    std::mt19937 random(seed + static_cast<unsigned>(i));
    const auto among = [&](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    const int per_kv = static_cast<int>(among(1, 3)), kv_heads = static_cast<int>(among(1, 2));
    TileCase tile{"random, seed " + std::to_string(seed + static_cast<unsigned>(i)), {}, {}, {}};
    tile.shape = shape(per_kv * kv_heads, kv_heads, static_cast<int>(8 * among(1, 12)),
                       static_cast<int>(8 * among(1, 12)), among(0, 3) == 0 ? DType::bf16 : DType::fp32, among(1, 2));
    tile.queries = {among(-40, 300), among(1, 260), among(1, 4)};
    tile.carry = among(0, 1) == 1;
    tile.seed = seed + static_cast<unsigned>(i);
    for (std::int64_t side = among(1, 3); side > 0; --side) {
      CaseSide keys{{among(0, 200), among(1, 400), among(1, 4)}, {}};
      // Disjoint by their keys.
      for (std::int64_t from = among(-10, 100), bands = among(0, 4); bands > 0; --bands) {
        Band band{.k0 = from, .k1 = from + among(1, 300)};
        if (among(0, 1) == 1) band.lo = among(-100, 100);
        if (among(0, 1) == 1) band.hi = std::max<std::int64_t>(band.lo == -unbounded ? -100 : band.lo, among(0, 300));
        if (among(0, 2) == 0) band.q0 = among(-40, 300);
        if (among(0, 2) == 0) band.q1 = among(100, 1200);
        from = band.k1;
        keys.bands.push_back(band);
      }
      tile.sides.push_back(keys);
    }
    cases.push_back(tile);
  }
  return cases_to_run(std::move(cases), 24);
}

}  // namespace distattn::test
