/// Pieces of tiles, counted pair by pair.

#include "backends/cudnn/pieces.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace distattn;
using backends::cudnn::Piece;
using backends::cudnn::pieces_of;

bool holds(const Piece& piece, std::int64_t row, std::int64_t column) {
  const std::int64_t i = row - piece.rows.begin, j = column - piece.columns.begin;
  return (!piece.right || j <= i + *piece.right) && (!piece.left || j > i - *piece.left);
}

/// How often the pieces hold each pair; checks that each row of a piece sees something.
std::map<std::pair<std::int64_t, std::int64_t>, int> pairs_of(const std::vector<Piece>& pieces) {
  std::map<std::pair<std::int64_t, std::int64_t>, int> pairs;
  for (const Piece& piece : pieces) {
    REQUIRE_FALSE((piece.rows.empty() || piece.columns.empty()));
    if (piece.left) CHECK(piece.rows.end - piece.rows.begin <= piece.columns.end - piece.columns.begin);
    for (std::int64_t row = piece.rows.begin; row < piece.rows.end; ++row) {
      int seen = 0;
      for (std::int64_t column = piece.columns.begin; column < piece.columns.end; ++column) {
        if (!holds(piece, row, column)) continue;
        ++pairs[{row, column}];
        ++seen;
      }
      CHECK(seen > 0);
    }
  }
  return pairs;
}

void check_pieces(const Run& queries, const Run& keys, const std::vector<Band>& bands) {
  std::map<std::pair<std::int64_t, std::int64_t>, int> visible;
  for (std::int64_t row = 0; row < queries.count; ++row) {
    for (std::int64_t column = 0; column < keys.count; ++column) {
      for (const Band& band : bands) {
        if (band.holds(queries.at(row), keys.at(column))) ++visible[{row, column}];
      }
    }
  }
  CHECK(pairs_of(pieces_of(queries, keys, bands)) == visible);
}

const Band causal{.lo = 0};

}  // namespace

TEST_CASE("pieces hold every visible pair once, and no row without a key") {
  test::Random random(test::seed());
  INFO("seed " << test::seed());
  const auto below = [&](std::int64_t bound) { return random.between(0, bound - 1); };
  for (int turn = 0; turn < 3000; ++turn) {
    const std::int64_t stride = 1 + below(3), lo = below(25) - 12;
    const Run queries{below(30), below(12), stride}, keys{below(30), below(12), stride};
    const Band band{.q0 = below(15),
                    .q1 = 15 + below(40),
                    .k0 = below(15),
                    .k1 = 15 + below(40),
                    .lo = below(4) == 0 ? -unbounded : lo,
                    .hi = below(3) == 0 ? unbounded : lo + below(12) - 1};
    CAPTURE(turn, queries.start, queries.count, keys.start, keys.count, stride, band.q0, band.q1, band.k0, band.k1,
            band.lo, band.hi);
    check_pieces(queries, keys, {band});
  }
}

TEST_CASE("masks of several bands become several pieces") {
  check_pieces({0, 40}, {0, 40}, {{.k1 = 3, .lo = 0}, {.k0 = 3, .lo = 0, .hi = 9}});
  check_pieces({5, 30}, {0, 40}, {{.q1 = 11, .k1 = 11, .lo = 0}, {.q0 = 11, .q1 = 30, .k0 = 11, .k1 = 30, .lo = 0}});
}

TEST_CASE("tiles of the usual layouts are what cuDNN has words for") {
  const auto only = [](const Run& queries, const Run& keys) {
    const auto pieces = pieces_of(queries, keys, std::vector{causal});
    REQUIRE(pieces.size() == 1);
    const Piece& piece = pieces.front();
    return std::tuple(piece.rows.begin, piece.rows.end, piece.columns.begin, piece.columns.end, piece.left,
                      piece.right);
  };
  using Bound = std::optional<std::int64_t>;
  CHECK(only({0, 64}, {0, 64}) == std::tuple(0, 64, 0, 64, Bound(), Bound(0)));
  CHECK(only({64, 64}, {0, 64}) == std::tuple(0, 64, 0, 64, Bound(), Bound()));
  CHECK(only({3, 16, 4}, {1, 16, 4}) == std::tuple(0, 16, 0, 16, Bound(), Bound(0)));
  CHECK(only({1, 16, 4}, {3, 16, 4}) == std::tuple(1, 16, 0, 15, Bound(), Bound(0)));
  CHECK(only({10, 20}, {0, 20}) == std::tuple(0, 20, 0, 20, Bound(), Bound(10)));
}

TEST_CASE("a window over more queries than keys begins with a piece that it does not cut") {
  const Run queries{0, 100}, keys{0, 60};
  const Band window{.lo = -20, .hi = 49};
  const auto pieces = pieces_of(queries, keys, std::vector{window});
  REQUIRE(pieces.size() == 2);
  CHECK_FALSE(pieces[0].left);
  CHECK((pieces[0].rows.begin == 0 && pieces[0].rows.end == 50 && pieces[1].rows.end == 100));
  check_pieces(queries, keys, {window});
}

TEST_CASE("what a version of cuDNN computes wrongly is named") {
  using backends::cudnn::why_no_piece;
  const auto forward = [](const Piece& piece, std::size_t version) {
    return why_no_piece(piece, Pass::forward, version);
  };
  const Piece piece{{0, 2000}, {0, 2000}, 9, {}};
  CHECK_THAT(forward(piece, 91400), contains_text("9.14.0"));
  CHECK(forward(piece, 91401).empty());
  CHECK(forward({{0, 2000}, {0, 2000}, 9, 0}, 91400).empty());
  CHECK(forward({{0, 1000}, {0, 1000}, 9, {}}, 91400).empty());
  CHECK(forward({{0, 2000}, {0, 2000}, {}, 7}, 91400).empty());

  const auto backward = [](const Piece& of, std::size_t version) { return why_no_piece(of, Pass::backward, version); };
  CHECK_THAT(backward({{0, 2048}, {0, 2048}, 9, {}}, 91400), contains_text("windows"));
  CHECK_THAT(backward({{0, 77}, {1, 130}, {}, 0}, 91500), contains_text("(these are 129)"));
  CHECK(backward({{0, 77}, {1, 129}, {}, 0}, 91500).empty());
  CHECK(backward({{0, 77}, {1, 130}, {}, 0}, 91501).empty());
  CHECK(forward({{0, 77}, {1, 130}, {}, 0}, 91500).empty());
  CHECK_THAT(backward({{5, 6}, {7, 8}, {}, {}}, 91900), contains_text("single pair"));
  CHECK(backward({{5, 6}, {7, 9}, {}, {}}, 91900).empty());
  CHECK(forward({{5, 6}, {7, 8}, {}, {}}, 91900).empty());
}

TEST_CASE("a band that cuts queries and keys of different strides is refused, others are not") {
  check_pieces({40, 7, 3}, {0, 9, 2}, {causal});
  check_pieces({9, 1, 3}, {0, 9, 2}, {causal});
  check_pieces({0, 9, 3}, {13, 1, 2}, {causal});
  CHECK_THROWS_WITH(pieces_of({0, 9, 3}, {0, 9, 2}, std::vector{causal}), contains_text("take provider own"));
}

TEST_CASE("shapes that cuDNN does not take are named") {
  const auto why = [](DType dtype, int head_dim, kernels::Heads heads) {
    return backends::cudnn::why_no_tile({dtype, 1, heads, head_dim, 64, {1}});
  };
  CHECK(why(DType::bf16, 64, {}).empty());
  CHECK(why(DType::fp16, 256, {.q_count = 6, .kv_count = 2, .q0 = 6, .kv0 = 2, .per_kv = 3}).empty());
  CHECK_THAT(why(DType::fp32, 64, {}), contains_text("fp32"));
  CHECK_THAT(why(DType::bf16, 20, {}), contains_text("head dimension 20"));
  CHECK_THAT(why(DType::bf16, 264, {}), contains_text("head dimension 264"));
  CHECK_THAT(why(DType::bf16, 64, {.q_count = 4, .kv_count = 3, .q0 = 3, .kv0 = 1, .per_kv = 2}),
             contains_text("head groups"));
}

TEST_CASE("gradients of heads that cuDNN has no engine for are refused by generation and version") {
  using backends::cudnn::why_no_gradients;
  for (const int architecture : {80, 90, 100, 120}) {
    CAPTURE(architecture);
    CHECK(why_no_gradients(128, 128, architecture, 91900).empty());
    CHECK(why_no_gradients(256, 256, architecture, 91900).empty() == (architecture == 90));
    CHECK(why_no_gradients(192, 128, architecture, 91900).empty() == (architecture == 90 || architecture == 100));
  }
  CHECK_THAT(why_no_gradients(192, 192, 86, 91900), contains_text("192/192 on a GPU of compute capability 8.6"));
  CHECK_THAT(why_no_gradients(160, 96, 90, 91200), contains_text("160/96"));
  CHECK(why_no_gradients(160, 96, 90, 91300).empty());
  CHECK(why_no_gradients(160, 128, 90, 91200).empty());
  CHECK_FALSE(why_no_gradients(192, 128, 100, 91002).empty());
}
