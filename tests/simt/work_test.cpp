/// What the host tells the kernels to visit, against every pair of positions; and which kernel is chosen.

#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "catch.hpp"
#include "kernels/cuda/attend_kernels.hpp"
#include "kernels/cuda/work.hpp"

namespace {

using namespace distattn::kernels::cuda;
using distattn::Band;
using distattn::Coverage;
using distattn::DType;
using distattn::Run;
using distattn::kernels::Heads;
using distattn::kernels::TileShape;

constexpr TileSize small{6, 8};

struct Pair {
  int own, other;
  std::int64_t row, column;
  auto operator<=>(const Pair&) const = default;
};

/// Every pair that the list's tiles show, with how often.
std::map<Pair, int> shown(const WorkList& list, std::span<const OwnSide> sides, TileSize tile) {
  std::map<Pair, int> pairs;
  for (const Block& block : list.blocks) {
    const Run& own = sides[static_cast<std::size_t>(block.own)].run;
    for (TileCursor at(list.visits.data(), block); at.valid(); at.advance(list.visits.data(), tile.columns)) {
      const Visit& visit = list.visits[static_cast<std::size_t>(at.visit)];
      for (std::int64_t row = block.row_begin; row < std::min<std::int64_t>(block.row_begin + tile.rows, own.count);
           ++row) {
        const std::uint64_t visible = at.is_cut()
                                          ? visible_columns(list.cuts.data() + at.first_cut, at.last_cut - at.first_cut,
                                                            static_cast<std::int32_t>(row), at.column)
                                          : ~std::uint64_t{0};
        for (int j = 0; j < tile.columns; ++j) {
          if ((visible >> j & 1u) != 0) ++pairs[{block.own, visit.other, row, at.column + j}];
        }
      }
    }
  }
  return pairs;
}

std::map<Pair, int> visible(std::span<const OwnSide> sides, std::span<const Pairing> pairings) {
  std::map<Pair, int> pairs;
  for (const Pairing& pairing : pairings) {
    const Run& own = sides[static_cast<std::size_t>(pairing.own)].run;
    for (std::int64_t row = 0; row < own.count; ++row) {
      for (std::int64_t column = 0; column < pairing.columns.count; ++column) {
        for (const Band& band : pairing.bands) {
          if (band.holds(own.at(row), pairing.columns.at(column))) ++pairs[{pairing.own, pairing.other, row, column}];
        }
      }
    }
  }
  return pairs;
}

std::int64_t tiles_in(const WorkList& list, int columns) {
  std::int64_t tiles = 0;
  for (const Visit& visit : list.visits) tiles += distattn::ceil_div(visit.end - visit.begin, columns);
  return tiles;
}

}  // namespace

TEST_CASE("lists show every visible pair once, and nothing else", "[simt]") {
  const unsigned seed = 11;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution<std::int64_t>(from, to)(random); };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<OwnSide> sides;
    for (int own = 0; own < 2; ++own) sides.push_back({{draw(-20, 20), draw(0, 30), draw(1, 4)}, true});
    const std::int64_t cut = draw(0, 30), window = draw(0, 25);
    const std::vector<Band> bands{{.k1 = cut, .lo = draw(-9, 9), .hi = 40},
                                  {.q0 = 5, .k0 = cut, .lo = -3, .hi = window}};
    std::vector<Pairing> pairings;
    for (int own = 0; own < 2; ++own) {
      for (int other = 0; other < 2; ++other) {
        pairings.push_back({own, other, {draw(-20, 20), draw(0, 40), draw(1, 4)}, bands});
      }
    }
    const WorkList list = list_work(sides, pairings, small);
    REQUIRE(shown(list, sides, small) == visible(sides, pairings));
  }
}

TEST_CASE("a turned band shows the same pairs", "[simt]") {
  const Band band{2, 9, -1, 7, -2, 3};
  for (std::int64_t q = -5; q < 12; ++q) {
    for (std::int64_t k = -5; k < 12; ++k) CHECK(transposed(band).holds(k, q) == band.holds(q, k));
  }
}

TEST_CASE("only tiles with something visible are visited", "[simt]") {
  // 2000 documents of 5 tokens: each block of 6 rows meets the tiles of at most three of them.
  std::vector<Band> documents;
  for (std::int64_t begin = 0; begin < 10000; begin += 5) documents.push_back({begin, begin + 5, begin, begin + 5, 0});
  const std::vector<OwnSide> side{{{0, 10000}, true}};
  const std::vector<Pairing> pairing{{0, 0, {0, 10000}, documents}};
  const WorkList list = list_work(side, pairing, small);
  std::set<std::pair<std::int64_t, std::int64_t>> touched;
  for (std::int64_t q = 0; q < 10000; ++q) {
    for (std::int64_t k = q / 5 * 5; k <= q; ++k) touched.insert({q / small.rows, k / small.columns});
  }
  CHECK(tiles_in(list, small.columns) == static_cast<std::int64_t>(touched.size()));
}

TEST_CASE("a causal mask costs half of a full one, and whole tiles carry no cuts", "[simt]") {
  const std::vector<OwnSide> side{{{0, 64 * 64}, true}};
  const std::vector<Band> causal{{.lo = 0}};
  const std::vector<Pairing> pairing{{0, 0, {0, 64 * 64}, causal}};
  const WorkList list = list_work(side, pairing, {64, 64});
  CHECK(tiles_in(list, 64) == 64 * 65 / 2);
  REQUIRE(list.blocks.size() == 64);
  const Block& longest = list.blocks.front();
  CHECK(longest.row_begin == 63 * 64);
  REQUIRE(longest.last_visit - longest.first_visit == 2);
  const Visit& before = list.visits[static_cast<std::size_t>(longest.first_visit)];
  CHECK((before.begin == 0 && before.end == 63 * 64 && before.first_cut == before.last_cut));
  CHECK(list.blocks.back().row_begin == 0);
}

TEST_CASE("rows that see nothing get a block only where they must be written", "[simt]") {
  const std::vector<Pairing> nothing{{0, 0, {0, 20}, {}}};
  CHECK(list_work(std::vector<OwnSide>{{{0, 20}, true}}, nothing, small).blocks.size() == 4);
  CHECK(list_work(std::vector<OwnSide>{{{0, 20}, false}}, nothing, small).blocks.empty());
}

TEST_CASE("query heads share a block where they share their keys and leave half of it empty", "[simt]") {
  const auto heads_of_block = [](const Heads& heads, std::int64_t queries = 64, const char* name = "") {
    const AttendRequest request{TilePass::forward, {DType::bf16, 1, heads, 128, 128}, queries, {}, name};
    const AttendKernel* kernel = find_attend_kernel(request, {90}, {});
    REQUIRE(kernel != nullptr);
    return kernel->tile.heads;
  };
  CHECK(heads_of_block({.q_count = 8, .kv_count = 2, .per_kv = 4}) == 2);
  CHECK(heads_of_block({.q_count = 2, .q0 = 2, .per_kv = 4}) == 2);
  CHECK(heads_of_block({.q_count = 6, .kv_count = 2, .per_kv = 3}) == 1);
  CHECK(heads_of_block({.q_count = 2, .kv_count = 2, .q0 = 3, .per_kv = 4}) == 1);
  CHECK(heads_of_block({.q_count = 1, .per_kv = 4}) == 1);
  CHECK(heads_of_block({.q_count = 4, .kv_count = 4}) == 1);
  CHECK(heads_of_block({.q_count = 4, .per_kv = 4}, 65) == 1);
  CHECK(heads_of_block({.q_count = 4, .per_kv = 4}, 65, "forward 64x128 of 2 heads") == 2);
  CHECK(heads_of_block({.q_count = 4, .kv_count = 4}, 65, "forward 64x128 of 2 heads") == 1);
}

TEST_CASE("a choice takes the place of the first kernel of its family", "[simt]") {
  const AttendChoice choices[] = {{TilePass::forward, 90, 128, 128, Coverage::full, "forward 128x160"},
                                  {TilePass::forward, 90, 64, 64, Coverage::full, "no kernel"}};
  const auto name = [&](AttendRequest request, int architecture = 90) {
    const AttendKernel* kernel = find_attend_kernel(request, {architecture}, choices);
    REQUIRE(kernel != nullptr);
    return kernel->name;
  };
  const TileShape shape{DType::bf16, 1, {.q_count = 8, .kv_count = 2, .per_kv = 4}, 128, 128};
  AttendRequest request{TilePass::forward, shape, 512, Coverage::full};
  CHECK(name(request) == "forward 128x160");
  CHECK(name(request, 80) == find_attend_kernel(request, {80}, {})->name);
  request.name = "forward 128x96";
  CHECK(name(request) == "forward 128x96");
  request.name = "gradients 128x64";
  CHECK(name(request) == "forward 128x160");
  request = {TilePass::forward, shape, 512, Coverage::partial};
  CHECK(name(request) == "forward 128x128");
  request = {TilePass::forward, shape, 64, Coverage::full};
  CHECK(name(request) == "forward 64x128 of 2 heads");
  request = {TilePass::forward, {DType::bf16, 1, {}, 64, 64}, 512, Coverage::full};
  CHECK(name(request) == "forward 128x128");
}

TEST_CASE("names tell the kernels of a family apart, and what has been chosen exists", "[simt]") {
  std::set<std::tuple<TilePass, std::string, int, int, int, std::string>> names;
  for (const AttendKernel& each : attend_kernels()) {
    CAPTURE(each.name);
    const std::string features = names_of(each.features);
    CHECK(names.emplace(each.pass, features, each.architecture, each.head_dim, each.value_dim, each.name).second);
  }
  for (const AttendChoice& choice : attend_choices()) {
    CAPTURE(choice.name);
    CHECK(names.count({choice.pass, "bf16", choice.architecture, choice.head_dim, choice.value_dim,
                       std::string(choice.name)}) == 1);
  }
}

TEST_CASE("the tightest kernel is chosen, and a miss says what exists", "[simt]") {
  const AttendKernel* kernel = find_attend_kernel({TilePass::forward, {DType::bf16, 1, {}, 80, 64}}, {90});
  REQUIRE(kernel != nullptr);
  CHECK(kernel->head_dim == 96);
  kernel = find_attend_kernel({TilePass::key_gradients, {DType::fp16, 1, {}, 192, 192}}, {80});
  REQUIRE(kernel != nullptr);
  CHECK((kernel->head_dim == 256 && kernel->owner == Owner::keys));
  CHECK(find_attend_kernel({TilePass::forward, {DType::bf16, 1, {}, 64, 64}}, {75}) == nullptr);
  for (const int architecture : {80, 89, 90, 100}) {
    kernel = find_attend_kernel({TilePass::forward, {DType::bf16, 1, {}, 128, 128}}, {architecture});
    REQUIRE(kernel != nullptr);
    CHECK(kernel->architecture == (architecture == 90 ? 90 : 80));
  }
  CHECK(find_attend_kernel({TilePass::forward, {DType::fp64, 1, {}, 64, 64}}, {90}) == nullptr);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (int dim = 8; dim <= 256; dim += 8) CHECK(why_no_attend_kernel({dtype, 1, {}, dim, dim}, {80}).empty());
    for (int dim = 264; dim <= 576; dim += 8) {
      CHECK(why_no_attend_kernel({dtype, 1, {}, dim, dim - 64}, {80, 163 * 1024}).empty());
    }
  }
  for (const AttendKernel& each : attend_kernels()) CHECK((each.shared_bytes > 0 && each.shared_bytes <= 227 * 1024));
  CHECK(find_attend_kernel({TilePass::forward, {DType::bf16, 1, {}, 64, 64}}, {89, 99 * 1024}) != nullptr);
  CHECK(find_attend_kernel({TilePass::forward, {DType::bf16, 1, {}, 256, 256}}, {89, 99 * 1024}) != nullptr);
  CHECK(find_attend_kernel({TilePass::query_gradient, {DType::bf16, 1, {}, 256, 256}}, {89, 99 * 1024}) == nullptr);
  const std::string why = why_no_attend_kernel({DType::fp64, 1, {}, 64, 32}, {90});
  CHECK(why.find("fp64 with head dimension 64/32 on sm_90") != std::string::npos);
  CHECK(why.find("bf16 192/128 from sm_80") != std::string::npos);
}
