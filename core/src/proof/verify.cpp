#include "distattn/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>

#include "core/src/parallel.hpp"
#include "core/src/proof/program_check.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Details are kept up to this many, so that a small schedule's fault has a name; sums are kept always.
constexpr std::size_t most_details = std::size_t{1} << 21;
constexpr std::size_t most_findings = 64;

/// The first pair of messages that do not meet: entries of one sorted list without an equal in the other.
template <class Report>
void report_unmatched(std::vector<MessageKey>& sends, std::vector<MessageKey>& receives, Report report) {
  std::sort(sends.begin(), sends.end());
  std::sort(receives.begin(), receives.end());
  std::vector<MessageKey> only;
  std::set_difference(sends.begin(), sends.end(), receives.begin(), receives.end(), std::back_inserter(only));
  for (const MessageKey& key : only) report(key, key.from, "is sent and not received so");
  only.clear();
  std::set_difference(receives.begin(), receives.end(), sends.begin(), sends.end(), std::back_inserter(only));
  for (const MessageKey& key : only) report(key, key.to, "is awaited and not sent so");
}

}  // namespace

const char* name_of(FindingKind kind) {
  switch (kind) {
    case FindingKind::malformed:
      return "malformed";
    case FindingKind::unmatched:
      return "unmatched";
    case FindingKind::early:
      return "early";
    case FindingKind::late:
      return "late";
    case FindingKind::misplaced:
      return "misplaced";
    case FindingKind::coverage:
      return "coverage";
    case FindingKind::altered:
      return "altered";
    case FindingKind::undelivered:
      return "undelivered";
    case FindingKind::leak:
      return "leak";
    case FindingKind::race:
      return "race";
    case FindingKind::deadlock:
      return "deadlock";
    case FindingKind::mask:
      return "mask";
  }
  return "?";
}

struct Verifier::State {
  Outline outline;
  std::shared_ptr<const Tiles> tiles;
  ValueIndex values;
  std::mutex guard;
  VerifyReport report;
  std::vector<bool> added;
  std::vector<HashSum> coverage;  // by result: tiles computed, over all ranks
  HashSum sent, received;
  std::vector<MessageKey> sends, receives;
  std::vector<ComputedTile> computed;
  bool detailed = true;

  void find(FindingKind kind, Rank rank, int step, std::string message) {
    if (report.findings.size() < most_findings) report.findings.push_back({kind, rank, step, std::move(message)});
  }

  /// What a value's tiles must be, from the mask alone.
  std::vector<HashSum> expected_coverage() const {
    std::vector<HashSum> expected(values.size());
    for (int group = 0; group < tiles->groups(); ++group) {
      for (std::size_t i = 0; i < outline.sharding.queries.size(); ++i) {
        HashSum& row = expected[values.query(group, static_cast<SegmentId>(i))];
        for (std::size_t j = 0; j < outline.sharding.keys.size(); ++j) {
          const auto query = static_cast<SegmentId>(i), key = static_cast<SegmentId>(j);
          if (!tiles->live(query, key)) continue;
          const std::uint64_t hash = hash_of(group, query, key);
          row.add(hash);
          if (outline.pass == Pass::backward) expected[values.key(group, key)].add(hash);
        }
      }
    }
    return expected;
  }
  void check_coverage() {
    const std::vector<HashSum> expected = expected_coverage();
    for (std::size_t v = 0; v < expected.size(); ++v) {
      if (expected[v] == coverage[v]) continue;
      const Value value = values.result(v, outline.pass, owner_of(outline, values.input(v)));
      find(FindingKind::coverage, -1, -1,
           fmt::format("{}: {} tiles computed, {} needed{}", to_string(value), coverage[v].count, expected[v].count,
                       detailed ? name_tile(v) : ""));
    }
  }
  /// Which tile of result v is computed twice, or in vain, or never, and where.
  std::string name_tile(std::size_t v) const {
    std::vector<const ComputedTile*> mine;
    for (const ComputedTile& tile : computed) {
      if (tile.result == v) mine.push_back(&tile);
    }
    std::sort(mine.begin(), mine.end(), [](auto* a, auto* b) { return a->hash < b->hash; });
    const auto words = [](const Tile& t) {
      return fmt::format("(g{}, {}, {})", t.group, static_cast<int>(t.query), static_cast<int>(t.key));
    };
    for (std::size_t x = 0; x < mine.size(); ++x) {
      const ComputedTile& tile = *mine[x];
      if (x > 0 && mine[x - 1]->hash == tile.hash) {
        return fmt::format("; tile {} is computed twice, on rank {} step {} and on rank {} step {}", words(tile.tile),
                           mine[x - 1]->rank, mine[x - 1]->number, tile.rank, tile.number);
      }
      if (!tiles->live(tile.tile.query, tile.tile.key)) {
        return fmt::format("; tile {} on rank {} step {} has no visible pair", words(tile.tile), tile.rank,
                           tile.number);
      }
    }
    const Value value = values.input(v);
    const bool keys = is_key_side(value.kind);
    const std::size_t others = keys ? outline.sharding.queries.size() : outline.sharding.keys.size();
    for (std::size_t x = 0; x < others; ++x) {
      const Tile tile{value.group, keys ? static_cast<SegmentId>(x) : value.segment,
                      keys ? value.segment : static_cast<SegmentId>(x)};
      const std::uint64_t hash = hash_of(tile.group, tile.query, tile.key);
      const auto same = [&](const ComputedTile* c) { return c->hash == hash; };
      if (tiles->live(tile.query, tile.key) && std::none_of(mine.begin(), mine.end(), same)) {
        return fmt::format("; tile {} is computed nowhere", words(tile));
      }
    }
    return "";
  }
  void check_messages() {
    if (sent == received) return;
    if (!detailed) return find(FindingKind::unmatched, -1, -1, "messages sent and received are not the same");
    report_unmatched(sends, receives, [&](const MessageKey& key, Rank rank, const char* what) {
      find(FindingKind::unmatched, rank, key.number,
           fmt::format("rank {} step {}: {} from rank {} to rank {} {}", rank, key.number, to_string(key.value),
                       key.from, key.to, what));
    });
  }
};

Verifier::Verifier(const Outline& outline) : Verifier(outline, std::make_shared<const Tiles>(outline.sharding)) {}

Verifier::Verifier(const Outline& outline, std::shared_ptr<const Tiles> tiles) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.outline = outline;
  s.tiles = std::move(tiles);
  s.values = ValueIndex(s.outline.sharding);
  s.coverage.resize(s.values.size());
  const auto ranks = index(outline.sharding.ranks);
  s.added.assign(ranks, false);
  for (auto* figures : {&s.report.counts.bytes_sent, &s.report.counts.bytes_far, &s.report.counts.peak_remote_values,
                        &s.report.counts.peak_remote_bytes, &s.report.counts.memory_bytes}) {
    figures->assign(ranks, 0);
  }
}
Verifier::~Verifier() = default;

void Verifier::add(Rank rank, const RankProgram& program) {
  State& s = *state_;
  DISTATTN_EXPECT(rank >= 0 && rank < s.outline.sharding.ranks);
  RankCheck check = check_program(s.outline, *s.tiles, s.values, rank, program);
  HashSum sent, received;
  for (const MessageKey& key : check.sends) sent.add(hash_of(key));
  for (const MessageKey& key : check.receives) received.add(hash_of(key));

  const std::lock_guard lock(s.guard);
  const auto r = index(rank);
  DISTATTN_EXPECT(!s.added[r]);
  s.added[r] = true;
  for (Finding& finding : check.findings) s.find(finding.kind, finding.rank, finding.step, std::move(finding.message));
  Counts& counts = s.report.counts;
  counts.steps = std::max(counts.steps, check.steps);
  counts.messages += check.messages;
  counts.messages_coalesced += check.messages_coalesced;
  counts.tiles += check.tiles;
  counts.bytes_sent[r] = check.bytes_sent;
  counts.bytes_far[r] = check.bytes_far;
  counts.peak_remote_values[r] = check.peak_remote_values;
  counts.peak_remote_bytes[r] = check.peak_remote_bytes;
  counts.memory_bytes[r] = check.memory_bytes;
  for (const auto& [value, sum] : check.coverage) s.coverage[value].add(sum);
  s.sent.add(sent);
  s.received.add(received);
  if (s.sends.size() + check.sends.size() > most_details || s.computed.size() + check.computed.size() > most_details) {
    s.detailed = false;
    s.sends = {}, s.receives = {}, s.computed = {};
  }
  if (!s.detailed) return;
  s.sends.insert(s.sends.end(), check.sends.begin(), check.sends.end());
  s.receives.insert(s.receives.end(), check.receives.begin(), check.receives.end());
  s.computed.insert(s.computed.end(), check.computed.begin(), check.computed.end());
}

VerifyReport Verifier::finish() {
  State& s = *state_;
  if (const auto [a, b] = overlapping_bands(s.tiles->mask().bands()); a >= 0) {
    s.find(FindingKind::mask, -1, -1, fmt::format("bands {} and {} of the mask share a pair", a, b));
  }
  for (std::size_t r = 0; r < s.added.size(); ++r) {
    if (!s.added[r]) s.find(FindingKind::malformed, static_cast<Rank>(r), -1, fmt::format("rank {} has no program", r));
  }
  s.check_messages();
  s.check_coverage();
  std::stable_sort(s.report.findings.begin(), s.report.findings.end(), [](const Finding& a, const Finding& b) {
    return std::tuple(a.rank < 0, a.step, a.rank) < std::tuple(b.rank < 0, b.step, b.rank);
  });
  return std::move(s.report);
}

std::int64_t largest(const std::vector<std::int64_t>& by_rank) {
  return *std::max_element(by_rank.begin(), by_rank.end());
}

double mean(const std::vector<std::int64_t>& by_rank) {
  return std::accumulate(by_rank.begin(), by_rank.end(), 0.0) / static_cast<double>(by_rank.size());
}

std::int64_t memory_side_by_side(const std::vector<const Counts*>& passes) {
  std::vector<std::int64_t> sums(passes.front()->memory_bytes.size());
  for (const Counts* counts : passes) {
    std::transform(sums.begin(), sums.end(), counts->memory_bytes.begin(), sums.begin(), std::plus<>());
  }
  return largest(sums);
}

VerifyReport verify(const Schedule& schedule) {
  const auto tiles = std::make_shared<const Tiles>(schedule.outline.sharding);
  Verifier verifier(schedule.outline, tiles);
  const int ranks = std::min(schedule.outline.sharding.ranks, static_cast<int>(schedule.ranks.size()));
  for_each_rank(ranks, [&](Rank rank) { verifier.add(rank, schedule.ranks[index(rank)]); });
  return verifier.finish();
}

}  // namespace distattn
