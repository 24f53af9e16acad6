#include "cli/tools/groups.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include "distattn/index.hpp"

namespace distattn {
namespace {

/// What of a band lies in the problem: its rectangle, less what its differences cut off at the corners.
struct Reached {
  IndexRange queries, keys;
};

Reached reached(const Band& band, const Problem& problem) {
  IndexRange q{std::max(band.q0, problem.first_query()), std::min(band.q1, problem.seq_kv)};
  IndexRange k{std::max<std::int64_t>(band.k0, 0), std::min(band.k1, problem.seq_kv)};
  if (q.empty() || k.empty()) return {};
  q = {std::max(q.begin, k.begin + band.lo), std::min(q.end, k.end + band.hi)};
  k = {std::max(k.begin, q.begin - band.hi), std::min(k.end, q.end - band.lo)};
  return q.empty() || k.empty() ? Reached{} : Reached{q, k};
}

/// Bands that belong together, joined one by one.
class Partition {
 public:
  explicit Partition(std::size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  std::size_t root(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) { parent_[root(a)] = root(b); }

 private:
  std::vector<std::size_t> parent_;
};

/// Joins the bands whose ranges on one side overlap.
void join_overlapping(std::span<const Reached> bands, IndexRange Reached::*side, Partition& partition) {
  std::vector<std::size_t> order(bands.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return (bands[a].*side).begin < (bands[b].*side).begin; });
  std::int64_t end = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const IndexRange& range = bands[order[i]].*side;
    if (i > 0 && range.begin < end) partition.join(order[i - 1], order[i]);
    end = i == 0 ? range.end : std::max(end, range.end);
  }
}

void fill(std::vector<std::int32_t>& of_token, IndexRange positions, std::int64_t first, std::int32_t group) {
  std::fill(of_token.begin() + (positions.begin - first), of_token.begin() + (positions.end - first), group);
}

/// Of overlapping bands a token is written once for each of them: the last range that ends behind the ones before it
/// writes what they have not.
void fill_side(std::span<const Reached> bands, std::span<const std::int32_t> group, IndexRange Reached::*side,
               std::int64_t first, std::vector<std::int32_t>& of_token) {
  std::vector<std::size_t> order(bands.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return (bands[a].*side).begin < (bands[b].*side).begin; });
  std::int64_t written = first;
  for (const std::size_t i : order) {
    const IndexRange rest{std::max((bands[i].*side).begin, written), (bands[i].*side).end};
    if (rest.empty()) continue;
    fill(of_token, rest, first, group[i]);
    written = rest.end;
  }
}

void unite(IndexRange& hull, const IndexRange& range) {
  hull = hull.empty() ? range : IndexRange{std::min(hull.begin, range.begin), std::max(hull.end, range.end)};
}

void by_documents(const Problem& problem, MaskGroups& made) {
  const std::vector<std::int64_t>& ends = problem.mask.documents;
  for (std::size_t d = 0; d + 1 < ends.size(); ++d) {
    const IndexRange keys{ends[d], ends[d + 1]}, queries{std::max(keys.begin, problem.first_query()), keys.end};
    made.groups.push_back({queries.empty() ? IndexRange{} : queries, keys});
    const auto group = static_cast<std::int32_t>(d);
    fill(made.of_key, keys, 0, group);
    if (!queries.empty()) fill(made.of_query, queries, problem.first_query(), group);
  }
}

void by_bands(const Problem& problem, MaskGroups& made) {
  std::vector<Reached> bands;
  for (const Band& band : bands_of(problem.mask)) {
    const Reached part = reached(band, problem);
    if (!part.queries.empty()) bands.push_back(part);
  }
  Partition partition(bands.size());
  join_overlapping(bands, &Reached::queries, partition);
  join_overlapping(bands, &Reached::keys, partition);
  std::vector<std::size_t> by_query(bands.size());
  std::iota(by_query.begin(), by_query.end(), 0);
  std::sort(by_query.begin(), by_query.end(),
            [&](std::size_t a, std::size_t b) { return bands[a].queries.begin < bands[b].queries.begin; });
  std::vector<std::int32_t> number(bands.size(), -1), group(bands.size());
  for (const std::size_t i : by_query) {
    std::int32_t& own = number[partition.root(i)];
    if (own < 0) {
      own = static_cast<std::int32_t>(made.groups.size());
      made.groups.emplace_back();
    }
    group[i] = own;
    unite(made.groups[index(own)].queries, bands[i].queries);
    unite(made.groups[index(own)].keys, bands[i].keys);
  }
  fill_side(bands, group, &Reached::queries, problem.first_query(), made.of_query);
  fill_side(bands, group, &Reached::keys, 0, made.of_key);
}

}  // namespace

MaskGroups groups_of(const Problem& problem) {
  MaskGroups made;
  made.of_query.assign(index(problem.seq_q), -1);
  made.of_key.assign(index(problem.seq_kv), -1);
  if (problem.mask.documents.empty()) {
    by_bands(problem, made);
  } else {
    by_documents(problem, made);
  }
  return made;
}

}  // namespace distattn
