/// Values that many more ranks use than others are passed on by those that have them.

#include "core/src/lower/relays.hpp"

#include <algorithm>
#include <numeric>

#include "catch.hpp"
#include "distattn/plan.hpp"
#include "distattn/verify.hpp"

using namespace distattn;

namespace {

/// A window and sinks, 64 tokens a rank.
Problem with_sinks(int ranks) {
  Problem problem;
  problem.seq_q = problem.seq_kv = 64 * ranks;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = problem.value_dim = 8;
  problem.dtype = DType::bf16;
  problem.mask = causal_mask();
  problem.mask.left = 63;
  problem.mask.sinks = 16;
  return problem;
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

}  // namespace

TEST_CASE("sinks are sent to all ranks by those that have them already") {
  constexpr int ranks = 64;
  constexpr std::int64_t token = 2 * (8 + 8) * 2;  // bytes of its keys and values
  const AttentionPlan made = or_refuse(plan(with_sinks(ranks), ranks, {"ring", Passes::both}));
  const std::vector<std::int64_t>& sent = made.counts(Pass::forward).bytes_sent;
  // Every rank but the last sends its keys to the next, and every rank but the first receives the sinks.
  CHECK(sum(sent) == token * ((ranks - 1) * 64 + (ranks - 2) * 16));
  // The owner's 16 would go out 63 times; from rank to rank they do so once a step at most.
  CHECK(largest(sent) <= token * (64 + 8 * 16));
  CHECK(sent[0] <= token * (64 + 8 * 16));
  // What travels back is merged on its way.
  const std::vector<std::int64_t>& back = made.counts(Pass::backward).bytes_sent;
  CHECK(static_cast<double>(largest(back)) <= 3 * mean(back));
}

TEST_CASE("a tree gives a value to those that can wait from those that have it") {
  Relays relays(9);
  relays.note(0, 7, 10);
  for (Rank owner = 1; owner < 9; ++owner) relays.note(owner, 1, 10);
  std::vector<Stop> stops;
  for (int rank = 1; rank < 8; ++rank) stops.push_back({rank, rank, rank});
  SECTION("one after the other") {
    const std::vector<Rank> senders = relays.senders(0, 10, stops);
    for (std::size_t s = 0; s < stops.size(); ++s) CHECK(senders[s] < stops[s].rank);
    CHECK(std::count(senders.begin(), senders.end(), 0) <= 3);
  }
  SECTION("all at once, when nobody else has it") {
    for (Stop& stop : stops) stop.sent = stop.has = 0;
    for (const Rank sender : relays.senders(0, 10, stops)) CHECK(sender == 0);
  }
  SECTION("from the owner, if there are few") {
    stops.resize(1);
    CHECK(relays.senders(1, 10, stops) == std::vector<Rank>{1});
  }
}
