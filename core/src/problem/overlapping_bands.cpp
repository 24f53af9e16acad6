#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "distattn/mask.hpp"

namespace distattn {
namespace {

/// Whether two bands share a pair: their intersection is a band too, and its differences form one range.
bool overlap(const Band& a, const Band& b) {
  const std::int64_t q0 = std::max(a.q0, b.q0), q1 = std::min(a.q1, b.q1);
  const std::int64_t k0 = std::max(a.k0, b.k0), k1 = std::min(a.k1, b.k1);
  if (q0 >= q1 || k0 >= k1) return false;
  const std::int64_t lo = std::max({a.lo, b.lo, q0 - (k1 - 1)}), hi = std::min({a.hi, b.hi, q1 - 1 - k0});
  return lo <= hi;
}

/// The queries that see a key through the band; empty where it holds no pair.
std::pair<std::int64_t, std::int64_t> rows_of(const Band& band) {
  if (band.k0 >= band.k1 || band.lo > band.hi) return {0, 0};
  return {std::max(band.q0, band.k0 + band.lo), std::min(band.q1, band.k1 + band.hi)};
}

/// Most masks come in order, and a mask of many documents is looked through again in every plan.
void sort_unless_sorted(std::vector<std::size_t>& bands, const auto& before) {
  if (!std::is_sorted(bands.begin(), bands.end(), before)) std::sort(bands.begin(), bands.end(), before);
}

/// Goes through the queries from first to last with the bands that the query at hand sees keys through, in the order
/// of these keys. From one query to the next a band's ends move by one key at most, and never back, so that bands
/// without a common pair keep their order; and those that have one are neighbours before they meet.
class Sweep {
 public:
  using Pair = std::pair<std::ptrdiff_t, std::ptrdiff_t>;

  explicit Sweep(std::span<const Band> bands) : bands_(bands), place_(bands.size()) {}

  Pair run() {
    std::vector<std::size_t> by_begin;
    for (std::size_t i = 0; i < bands_.size(); ++i) {
      if (rows_of(bands_[i]).first < rows_of(bands_[i]).second) by_begin.push_back(i);
    }
    std::vector<std::size_t> by_end = by_begin;
    sort_unless_sorted(by_begin, [&](auto a, auto b) { return begin(a) < begin(b); });
    sort_unless_sorted(by_end, [&](auto a, auto b) { return end(a) < end(b); });
    auto ended = by_end.begin();
    for (const std::size_t next : by_begin) {
      for (; end(*ended) <= begin(next); ++ended) {
        if (remove(*ended)) return found_;
      }
      query_ = begin(next);
      if (insert(next)) return found_;
    }
    while (ended != by_end.end() && !remove(*ended)) ++ended;
    return found_;
  }

 private:
  std::int64_t begin(std::size_t i) const { return rows_of(bands_[i]).first; }
  std::int64_t end(std::size_t i) const { return rows_of(bands_[i]).second; }
  std::int64_t first_key(std::size_t i) const { return std::max(bands_[i].k0, query_ - bands_[i].hi); }

  struct ByKey {
    const Sweep* sweep;
    bool operator()(std::size_t a, std::size_t b) const { return sweep->first_key(a) < sweep->first_key(b); }
  };
  using Open = std::multiset<std::size_t, ByKey>;

  bool insert(std::size_t i) {
    const Open::iterator at = place_[i] = open_.insert(i);
    return (at != open_.begin() && meet(*std::prev(at), i)) ||
           (std::next(at) != open_.end() && meet(i, *std::next(at)));
  }
  bool remove(std::size_t i) {
    const Open::iterator after = open_.erase(place_[i]);
    return after != open_.begin() && after != open_.end() && meet(*std::prev(after), *after);
  }
  bool meet(std::size_t a, std::size_t b) {
    if (!overlap(bands_[a], bands_[b])) return false;
    found_ = std::minmax(static_cast<std::ptrdiff_t>(a), static_cast<std::ptrdiff_t>(b));
    return true;
  }

  std::span<const Band> bands_;
  std::int64_t query_ = 0;
  Open open_{ByKey{this}};
  std::vector<Open::iterator> place_;  // by band, while it is open
  Pair found_{-1, -1};
};

}  // namespace

std::pair<std::ptrdiff_t, std::ptrdiff_t> overlapping_bands(std::span<const Band> bands) { return Sweep(bands).run(); }

}  // namespace distattn
