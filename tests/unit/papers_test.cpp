#include "cli/tools/papers.hpp"

#include <cmath>
#include <limits>

#include "catch.hpp"
#include "cli/tools/baselines.hpp"
#include "cli/tools/links.hpp"
#include "cli/tools/papers/paper_quantity.hpp"
#include "distattn/error.hpp"
#include "support/papers.hpp"

using namespace distattn;
using Catch::Matchers::Contains;

namespace {

double ours(const PaperTable& table, const std::string& where, const std::string& what) {
  return row_of(table, where, what).ours;
}

/// A file of one row that publishes 2 and computes `ours`.
PaperRow read_one(double ours, const std::string& fields, const std::string& reason) {
  const std::string text = R"({"title": "t", "source": "s", "scope": "s", "reasons": {"why": )" + reason +
                           R"(}, "rows": [{"where": "w", "what": "q", "published": 2, "ours": {"x": 1})" + fields +
                           "}]}";
  const auto compute = [ours](const std::string&) { return PaperValue{ours, PaperKind::predicted}; };
  return read_paper(text, "a test's paper", compute).rows.front();
}

const std::string below = R"({"text": "ours is faster", "differs": [-0.3, -0.1]})";

}  // namespace

TEST_CASE("an explanation holds for differences of its sign and size alone", "[papers]") {
  const std::string because = R"(, "because": "why")";
  CHECK(read_one(1.6, because, below).explained());
  CHECK_FALSE(read_one(2.4, because, below).explained());
  CHECK_FALSE(read_one(1.0, because, below).explained());
  CHECK_FALSE(read_one(2.0, because, below).explained());
  CHECK(read_one(2.4, because + R"(, "differs": [0.15, 0.25])", below).explained());
  CHECK_FALSE(read_one(1.6, "", below).explained());
  CHECK(read_one(2.05, "", below).explained());
  CHECK(read_one(3, R"(, "bound": "at least")", below).explained());
  CHECK_FALSE(read_one(1.6, R"(, "bound": "at least")", below).explained());
  CHECK_FALSE(read_one(3, R"(, "bound": "at most")", below).explained());

  PaperRow row = read_one(1.6, because, below);
  row.published = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(row.explained());
  row.claim.reset();
  CHECK(row.explained());
  row.note.clear();
  CHECK_FALSE(row.explained());
}

TEST_CASE("what a figure of ours is follows from how it came about", "[papers]") {
  CHECK(read_one(2, "", below).kind == PaperKind::predicted);
  CHECK(read_one(2, R"(, "fitted": true)", below).kind == PaperKind::calibrated);
  const std::string text = R"({"title": "t", "source": "s", "scope": "s", "methods": {"m": {"a": 1, "b": 1}}, "rows": [
    {"where": "w", "what": "ratio", "published": 2, "ours": {"ratio": [{"by": "m", "b": 4}, {"by": "m", "b": 2}]}},
    {"where": "w", "what": "difference", "published": 2, "ours": {"difference": [{"by": "m", "b": 4}, {"b": 2}]}},
    {"where": "w", "what": "most", "published": 4, "ours": {"most": [{"b": 2}, {"b": 4}, {"b": 3}]}},
    {"where": "w", "what": "absent", "published": 4, "ours": null}]})";
  std::vector<std::string> computed;
  const PaperTable table = read_paper(text, "a test's paper", [&](const std::string& quantity) {
    computed.push_back(quantity);
    const bool method = quantity.find("\"a\":1") != quantity.npos;
    return PaperValue{quantity[quantity.find("\"b\":") + 4] - '0' + 0.0,
                      method ? PaperKind::modelled : PaperKind::counted};
  });
  CHECK(ours(table, "w", "ratio") == 2);
  CHECK(ours(table, "w", "difference") == 2);
  CHECK(ours(table, "w", "most") == 4);
  CHECK(row_of(table, "w", "difference").kind == PaperKind::modelled);
  CHECK(row_of(table, "w", "most").kind == PaperKind::counted);
  CHECK(row_of(table, "w", "absent").kind == PaperKind::absent);
  CHECK(computed.size() == 5);
}

TEST_CASE("claims without a direction and unknown fields of a paper's data are refused", "[papers]") {
  for (const char* range : {"[-0.1, 0.1]", "[0, 0.1]", "[0.2, 0.1]", "0.1"}) {
    CHECK_THROWS_WITH(read_one(2, R"(, "because": "why")", R"({"text": "t", "differs": )" + std::string(range) + "}"),
                      Contains("differs"));
  }
  CHECK_THROWS_WITH(read_one(2, R"(, "because": "who")", below), Contains("because"));
  CHECK_THROWS_WITH(read_one(2, R"(, "bound": "about")", below), Contains("at least"));
  CHECK_THROWS_WITH(read_one(2, R"(, "note": "n")", below), Contains("note"));
  CHECK_THROWS_WITH(
      paper_quantity(R"({"volume": "ring", "ranks": 2, "tokens": 64, "heads": 1, "head_dim": 8, "x": 1})", "p"),
      Contains("x"));
}

TEST_CASE("every figure of every paper is computed, and every difference has the sign and size of its note",
          "[papers]") {
  const std::string name = GENERATE("attention2d", "burstattention", "distflashattn");
  const PaperTable table = compare_with_paper(name);
  CHECK_FALSE(table.source.empty());
  CHECK_FALSE(table.scope.empty());
  CHECK(table.rows.size() >= 15);
  check_explained(table);
}

TEST_CASE("published figures of attention alone are those of a second copy", "[papers]") {
  const PaperTable dfa = compare_with_paper("distflashattn");
  const std::string overhead = "communication overhead ", ranks = " overlap, 16 GPUs, ";
  check_published(dfa, "Figure 5 (right)", overhead + "without" + ranks + "128K tokens", 1.05);
  check_published(dfa, "Figure 5 (right)", overhead + "with" + ranks + "128K tokens", 0.44);
  check_published(dfa, "Figure 5 (right)", overhead + "with" + ranks + "256K tokens", 0.08);
  check_published(dfa, "Figure 5 (right)", overhead + "without" + ranks + "512K tokens", 0.33);
  check_published(dfa, "Figure 5 (right)", overhead + "with" + ranks + "512K tokens", 0.01);
  check_published(dfa, "§4.4", "balanced over Ring Attention, 8 GPUs", 1.67);
  check_published(dfa, "§4.3", "work added by padding 33 heads to 16 GPUs", 0.455);
  CHECK(published_rows(dfa, "Appendix C") == 7);
  CHECK(published_rows(dfa, "Figure 5 (left)") == 2);
  CHECK(published_rows(dfa, "Figure 5 (right)") == 5);

  const PaperTable burst = compare_with_paper("burstattention");
  const std::string of[] = {"RingAttention's volume ", "tensor parallelism's volume "};
  check_published(burst, "Table 1", of[0] + "forward", 2);
  check_published(burst, "Table 1", of[0] + "backward", 6);
  check_published(burst, "Table 1", of[1] + "forward", 4);
  check_published(burst, "Table 1", of[1] + "backward", 4);
  check_published(burst, "Table 1", "BurstAttention's volume forward, 8 GPUs, no mask", 2);
  check_published(burst, "Table 1", "BurstAttention's volume backward, 8 GPUs, no mask", 3);
  check_published(burst, "Abstract", "speed against tensor parallelism, 32 GPUs, 128K tokens, attention alone", 1.37);
  check_published(burst, "§1", "speed against tensor parallelism, 8 GPUs, 128K tokens, attention alone", 2.0);

  const PaperTable mesh = compare_with_paper("attention2d");
  for (const char* system : {"Megatron-LM", "Megatron-LM-SP", "Sequence Parallelism", "Ring Attention", "Lightseq"}) {
    check_published(mesh, "Table 1", "growth of " + std::string(system) + "'s volume from 16 to 64 GPUs", 1);
  }
  check_published(mesh, "Table 1", "growth of USP's volume from 16 to 64 GPUs", 1);
  check_published(mesh, "Table 1", "growth of Ulysses' volume from 16 to 32 GPUs", 1);
  check_published(mesh, "Table 1", "growth of Attention2D's volume from 16 to 64 GPUs", 0.5);
}

TEST_CASE("counts of whole tiles are those of DistFlashAttn's Figure 1", "[papers]") {
  const PaperTable table = compare_with_paper("distflashattn");
  CHECK(ours(table, "§3.2", "idle share of the ring, 8 workers, whole tiles") == Approx(0.4375));
  CHECK(ours(table, "Eq. 2", "idle share of balanced, 8 workers, whole tiles") == Approx(0.1));
  CHECK(ours(table, "Eq. 2", "idle share of balanced, 7 workers, whole tiles") == 0);
  CHECK(ours(table, "§4.6", "expected speedup of the ring, 8 workers") == Approx(4.5));
  CHECK(ours(table, "§4.6", "expected speedup of balanced, 8 workers") == Approx(7.2));
}

TEST_CASE("BurstAttention saves a quarter like for like and loses from two query heads a key head on", "[papers]") {
  const PaperTable table = compare_with_paper("burstattention");
  CHECK(ours(table, "§3.2", "backward against moving keys and gradients, no mask") == Approx(0.75).epsilon(0.02));
  CHECK(ours(table, "§3.2", "the same for the busiest rank under a causal mask") == Approx(14.2 / 14).epsilon(0.01));
  CHECK(ours(table, "§3.2", "the same with two query heads a key head, no mask") > 1);
  // K and V round a ring, whole dK and dV summed over the ranks: not what our ring does.
  CHECK(ours(table, "Table 1", "RingAttention's volume backward") == 6);
  CHECK(ours(table, "Table 1", "RingAttention's volume backward, as our ring sends it") == 3.5);
}

TEST_CASE("Attention2D's gain lies between what bytes of a rank and bytes of a node allow", "[papers]") {
  const PaperTable table = compare_with_paper("attention2d");
  // The limits that the explanations name.
  CHECK(ours(table, "§4.1", "Ring Attention's bytes between nodes of 4 GPUs in Attention2D's, 16 GPUs") ==
        Approx(1.2).epsilon(0.02));
  CHECK(ours(table, "§4.1", "Ring Attention's bytes between nodes of 4 GPUs in Attention2D's, 64 GPUs") ==
        Approx(2.2).epsilon(0.02));
  CHECK(ours(table, "§4.1", "Ring Attention's bytes of a rank in Attention2D's, 16 GPUs") == Approx(2.7).epsilon(0.01));
  CHECK(ours(table, "§4.1", "Ring Attention's bytes of a rank in Attention2D's, 64 GPUs") == Approx(4.9).epsilon(0.01));
}

TEST_CASE("a node's link is charged once a node", "[papers]") {
  const std::string sizes = R"("tokens": 131072, "heads": 32, "head_dim": 128, "pass": "both"})";
  const auto transfer = [&](const std::string& machine, int ranks) {
    return paper_quantity(R"({"transfer": "tensor-parallel", "machine": ")" + machine +
                              "\", \"ranks\": " + std::to_string(ranks) + ", " + sizes,
                          "a test's paper")
        .value;
  };
  const double bytes = 8.0 * 2 * 131072 * 32 * 128;
  const Machine roce = find_machine("a100-pcie-roce"), ethernet = find_machine("a100-pcie-ethernet");
  CHECK(transfer("a100-pcie-roce", 8) == Approx(bytes * 7 / 8 / roce.near.bytes_per_s));
  CHECK(transfer("a100-pcie-roce", 32) == Approx(bytes * 31 / 32 / roce.near.bytes_per_s));
  CHECK(transfer("a100-pcie-ethernet", 64) == Approx(bytes * 63 / 64 / ethernet.far.bytes_per_s));
  CHECK(transfer("a100-pcie-ethernet", 64) == Approx(ring_seconds(bytes * 63 / 64, 64, ethernet)));
}

TEST_CASE("a paper that is not here is refused with those that are", "[papers]") {
  CHECK(paper_names() == std::vector<std::string>{"attention2d", "burstattention", "distflashattn"});
  CHECK_THROWS_WITH(compare_with_paper("flashattention"), Contains("flashattention") && Contains("burstattention"));
}

TEST_CASE("baselines count what their papers count", "[papers]") {
  Problem problem;
  problem.seq_q = problem.seq_kv = 65536;
  problem.heads = problem.kv_heads = 33;
  problem.head_dim = problem.value_dim = 128;
  const auto all = baselines(problem, 16);
  const auto total = [&](const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Baseline& b) { return b.name == name; });
    REQUIRE(found != all.end());
    return found->forward + found->backward;
  };
  CHECK(total("megatron") == 10);
  CHECK(total("megatron-recompute") == 14);
  CHECK(total("ring-self-attention") == 8);
  CHECK(total("distflashattn") == 3);
  CHECK(total("burstattention") == Approx(5 + 2.0 / 128));
  CHECK(total("ulysses") == 0.5);
  CHECK(padded_heads(33, 16) == 48);
  CHECK(padded_heads(32, 16) == 32);
  // One convention in the whole program, that of DistFlashAttn's §4.3.
  CHECK(padded_share(33, 16) == Approx(15.0 / 33));
  CHECK(padded_share(32, 16) == 0);
  CHECK_THAT(all.front().note, Contains("45.5 %"));
}
