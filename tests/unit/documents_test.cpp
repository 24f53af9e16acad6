#include "cli/tools/documents.hpp"

#include <algorithm>

#include "catch.hpp"
#include "distattn/error.hpp"
#include "distattn/mask.hpp"

using namespace distattn;

namespace {

constexpr std::int64_t million = std::int64_t{1} << 20;

std::vector<std::int64_t> lengths_of(const std::vector<std::int64_t>& ends) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 1; i < ends.size(); ++i) lengths.push_back(ends[i] - ends[i - 1]);
  return lengths;
}

double share_within(const std::vector<std::int64_t>& lengths, std::int64_t from, std::int64_t to) {
  const auto count = std::count_if(lengths.begin(), lengths.end(), [&](auto n) { return from <= n && n < to; });
  return static_cast<double>(count) / static_cast<double>(lengths.size());
}

}  // namespace

TEST_CASE("documents are cu-seqlens that a mask accepts") {
  for (const std::string& corpus : document_corpora())
    for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{1000}, million}) {
      Mask mask;
      mask.documents = draw_documents(corpus, tokens, 3);
      CHECK_NOTHROW(check(mask, tokens));
      const auto lengths = lengths_of(mask.documents);
      CHECK(*std::min_element(lengths.begin(), lengths.end()) >= 1);
    }
}

TEST_CASE("the same seed draws the same documents everywhere, another seed others") {
  CHECK(document_corpora() == std::vector<std::string>{"pile", "prolong64k", "prolong512k"});
  const auto some = draw_documents("pile", 2000, 0);
  CHECK(some == draw_documents("pile", 2000, 0));
  CHECK(some != draw_documents("pile", 2000, 1));
  CHECK(some != draw_documents("prolong64k", 2000, 0));
  CHECK(some == std::vector<std::int64_t>{0, 68, 387, 889, 1101, 1147, 1217, 1365, 2000});

  const auto more = draw_documents("pile", 4000, 0);
  CHECK(std::equal(some.begin(), some.end() - 1, more.begin()));
}

TEST_CASE("lengths have the histogram's shares") {
  const auto lengths = lengths_of(draw_documents("pile", 64 * million, 1));
  REQUIRE(lengths.size() > 20000);
  CHECK(share_within(lengths, 0, 32) == Approx(0.029931).margin(0.003));
  CHECK(share_within(lengths, 128, 160) == Approx(0.071745).margin(0.005));
  CHECK(share_within(lengths, 14208, 9323168) == Approx(0.002246).margin(0.001));
  CHECK(share_within(lengths, 0, 9323168) == 1.0);
}

TEST_CASE("64K tokens of Pile are many documents") {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 32; ++seed)
    sum += static_cast<double>(draw_documents("pile", 65536, seed).size());
  CHECK(sum / 32 > 60);
}

TEST_CASE("unknown corpora are refused") {
  CHECK_THROWS_WITH(draw_documents("piles", 100, 0), contains_text("pile, prolong64k, prolong512k"));
  CHECK_THROWS_AS(draw_documents("source", 100, 0), Error);
  CHECK_THROWS_AS(draw_documents("pile", 0, 0), Error);
}
