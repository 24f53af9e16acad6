#include "core/src/problem/residue_pairs.hpp"

#include <algorithm>

#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Whether key segment j is every n-th position from j on, to the end of the sequence.
bool are_residues(std::span<const Segment> keys, std::int64_t tokens) {
  const auto n = static_cast<std::int64_t>(keys.size());
  for (std::int64_t j = 0; j < n; ++j) {
    if (keys[index(j)].run != Run{j, (tokens - j + n - 1) / n, n}) return false;
  }
  return true;
}

bool is_cheaper(const Sharding& sharding, const BandIndex& mask) {
  const std::int64_t first = sharding.problem.first_query(), end = sharding.problem.seq_kv;
  std::int64_t rows = 0;
  for (const Band& band : mask.bands()) {
    rows += std::max<std::int64_t>(0, std::min(band.q1, end) - std::max(band.q0, first));
  }
  const std::size_t asked = sharding.queries.size() * sharding.keys.size() * mask.bands().size();
  return index(rows) < asked;
}

/// Below position x lie ⌈(x−j)/n⌉ = ⌊x/n⌋ + [x mod n > j] keys of residue j. A row's visible keys are the difference of
/// two such counts, so rows are summed by their ends, and told apart by residue once they all are.
class ResidueSum {
 public:
  explicit ResidueSum(std::int64_t residues) : residues_(residues), above_(index(residues)) {}

  void add(std::int64_t begin, std::int64_t end) {
    add_below(end, 1);
    add_below(begin, -1);
  }
  void append_to(std::vector<std::int64_t>& out) const {
    const std::size_t first = out.size();
    out.resize(first + above_.size());
    std::int64_t sum = whole_;
    for (std::size_t j = above_.size(); j-- > 0; sum += above_[j]) out[first + j] = sum;
  }

 private:
  void add_below(std::int64_t x, std::int64_t weight) {
    whole_ += weight * (x / residues_);
    above_[index(x % residues_)] += weight;
  }

  std::int64_t residues_;
  std::int64_t whole_ = 0;
  std::vector<std::int64_t> above_;  // by x mod n: weight for the residues below it
};

}  // namespace

std::vector<std::int64_t> residue_pairs(const Sharding& sharding, const BandIndex& mask) {
  const std::int64_t tokens = sharding.problem.seq_kv;
  if (!are_residues(sharding.keys, tokens) || !is_cheaper(sharding, mask)) return {};
  std::vector<std::int64_t> pairs;
  pairs.reserve(sharding.queries.size() * sharding.keys.size());
  const Run all_keys{0, tokens, 1};
  for (const Segment& query : sharding.queries) {
    ResidueSum sum(static_cast<std::int64_t>(sharding.keys.size()));
    for (const Band& band : mask.reaching(query.run)) {
      const IndexRange rows = band_rows(band, query.run);
      for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        const IndexRange keys = band_keys(band, query.run.at(i), all_keys);
        if (!keys.empty()) sum.add(keys.begin, keys.end);
      }
    }
    sum.append_to(pairs);
  }
  return pairs;
}

}  // namespace distattn
