#include "core/src/placer/components.hpp"

#include <algorithm>
#include <cmath>

#include "distattn/index.hpp"

namespace distattn {
namespace {

/// Positions that a band connects.
struct Extent {
  std::int64_t begin = 0, end = 0;
  const Band* band = nullptr;
};

/// By first position, without bands that reach no position.
std::vector<Extent> extents_of(const BandIndex& mask, std::int64_t tokens) {
  std::vector<Extent> extents;
  for (const Band& band : mask.bands()) {
    const Run all{0, tokens, 1};
    if (!touches(band, all, all)) continue;
    const auto within = [tokens](std::int64_t position) { return std::clamp<std::int64_t>(position, 0, tokens); };
    extents.push_back({within(std::min(band.q0, band.k0)), within(std::max(band.q1, band.k1)), &band});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  return extents;
}

bool is_causal(const Band& band, std::int64_t begin, std::int64_t end) {
  return band.q0 <= begin && band.k0 <= begin && band.q1 >= end && band.k1 >= end && band.lo == 0 &&
         band.hi >= end - begin - 1;
}

}  // namespace

Component::Component(std::int64_t start, std::int64_t length, bool causal, const BandIndex& mask)
    : start_(start), length_(length), causal_(causal), mask_(&mask) {
  if (causal) {
    pairs_ = static_cast<double>(length) * static_cast<double>(length + 1) / 2;
    return;
  }
  const std::int64_t step = std::max<std::int64_t>(1, std::min(coarsest_grain, length / 16));
  for (std::int64_t at = 0; at < length; at += step) {
    cuts_.push_back(at);
    pairs_before_.push_back(pairs_);
    pairs_ += pairs(at, std::min(step, length - at), 0, length);
  }
  cuts_.push_back(length);
  pairs_before_.push_back(pairs_);
}

double Component::pairs(std::int64_t a, std::int64_t n, std::int64_t b, std::int64_t m) const {
  if (causal_) {
    if (b + m <= a) return static_cast<double>(n) * static_cast<double>(m);
    if (b >= a + n) return 0;
    if (a == b && n == m) return static_cast<double>(n) * static_cast<double>(n + 1) / 2;
  }
  return static_cast<double>(mask_->pairs({start_ + a, n, 1}, {start_ + b, m, 1}));
}

double Component::cut_at(double share) const {
  share = std::clamp(share, 0.0, 1.0);
  if (causal_) return static_cast<double>(length_) * std::sqrt(share);
  const double wanted = share * pairs_;
  const auto next = std::lower_bound(pairs_before_.begin(), pairs_before_.end(), wanted);
  const auto i = index(next - pairs_before_.begin());
  if (i == 0) return 0;
  if (i >= cuts_.size()) return static_cast<double>(length_);
  const double before = pairs_before_[i - 1], between = pairs_before_[i] - before;
  const double part = between > 0 ? (wanted - before) / between : 0;
  return static_cast<double>(cuts_[i - 1]) + part * static_cast<double>(cuts_[i] - cuts_[i - 1]);
}

std::vector<Component> components_of(const Problem& problem, const BandIndex& mask) {
  const std::int64_t tokens = problem.seq_kv;
  std::vector<Component> components;
  std::int64_t next = 0;  // the first position that belongs to none yet
  const std::vector<Extent> extents = extents_of(mask, tokens);
  for (std::size_t s = 0; s < extents.size();) {
    const std::int64_t begin = extents[s].begin;
    std::int64_t end = extents[s].end;
    std::size_t last = s + 1;
    for (; last < extents.size() && extents[last].begin < end; ++last) end = std::max(end, extents[last].end);
    if (begin > next) components.emplace_back(next, begin - next, false, mask);
    components.emplace_back(begin, end - begin, last == s + 1 && is_causal(*extents[s].band, begin, end), mask);
    next = end;
    s = last;
  }
  if (next < tokens) components.emplace_back(next, tokens - next, false, mask);
  return components;
}

}  // namespace distattn
