#include "distattn/mask.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/core.h>

#include "distattn/error.hpp"
#include "distattn/index.hpp"

namespace distattn {
namespace {

Mask explicit_mask(std::vector<Band> bands, std::string name) {
  std::erase_if(bands, [](const Band& band) { return band.q0 >= band.q1 || band.k0 >= band.k1; });
  Mask mask;
  mask.causal = false;
  mask.explicit_bands = true;
  mask.given = std::move(bands);
  mask.name = std::move(name);
  return mask;
}

bool is_windowed(const Mask& mask) { return mask.left >= 0 || (!mask.causal && mask.right >= 0); }

/// The bands of one document [begin, end): its sinks, seen from anywhere in it, and the window over its other keys.
void add_document(const Mask& mask, std::int64_t begin, std::int64_t end, std::vector<Band>& out) {
  if (begin >= end) return;
  const std::int64_t causal_lo = mask.causal ? 0 : -unbounded;
  std::int64_t key_begin = begin;
  if (is_windowed(mask) && mask.sinks > std::max<std::int64_t>(begin, 0)) {
    key_begin = std::min(end, mask.sinks);
    out.push_back({begin, end, begin, key_begin, causal_lo, unbounded});
  }
  if (key_begin == end) return;
  const std::int64_t lo = mask.causal || mask.right < 0 ? causal_lo : -std::min(mask.right, unbounded);
  const std::int64_t hi = mask.left < 0 ? unbounded : std::min(mask.left, unbounded);
  out.push_back({begin, end, key_begin, end, lo, hi});
}

std::string to_string(const Band& band) {
  const auto bound = [](std::int64_t x) {
    return x <= -unbounded ? "-inf" : x >= unbounded ? "inf" : fmt::format("{}", x);
  };
  return fmt::format("q [{}, {}) k [{}, {}) diff [{}, {}]", bound(band.q0), bound(band.q1), bound(band.k0),
                     bound(band.k1), bound(band.lo), bound(band.hi));
}

/// Sums of bounds and positions must not overflow.
void check_bounds(std::span<const Band> bands) {
  for (std::size_t i = 0; i < bands.size(); ++i) {
    const Band& band = bands[i];
    for (const std::int64_t bound : {band.q0, band.q1, band.k0, band.k1, band.lo, band.hi})
      if (bound < -unbounded || bound > unbounded)
        refuse(
            fmt::format("band {} of the mask has the bound {} (bounds end at ±2^60, which mean none): build the mask "
                        "with band_mask",
                        i, bound));
  }
}

void check_disjoint(std::span<const Band> bands) {
  const auto [a, b] = overlapping_bands(bands);
  if (a < 0) return;
  refuse(fmt::format("bands {} and {} of the mask overlap ({}; {}): make them disjoint, a pair may be seen once", a, b,
                     to_string(bands[index(a)]), to_string(bands[index(b)])));
}

void check_documents(std::span<const std::int64_t> documents, std::int64_t seq_kv) {
  if (documents.empty()) return;
  if (documents.front() != 0)
    refuse(fmt::format("cu-seqlens starts at {} (documents fill the sequence): start at 0", documents.front()));
  const auto falls = std::adjacent_find(documents.begin(), documents.end(), std::greater<>{});
  if (falls != documents.end())
    refuse(fmt::format("cu-seqlens falls from {} to {} (it lists cumulative ends): sort it", falls[0], falls[1]));
  if (documents.back() != seq_kv)
    refuse(
        fmt::format("cu-seqlens ends at {} (the sequence has {} keys): end at {}", documents.back(), seq_kv, seq_kv));
}

/// Bands, or hulls of bands, that have a hull together.
constexpr std::size_t fan_out = 16;

constexpr Run all_positions{-unbounded, 2, 2 * unbounded};

}  // namespace

Mask full_mask() {
  Mask mask;
  mask.causal = false;
  mask.name = "full";
  return mask;
}

Mask causal_mask() {
  Mask mask;
  mask.name = "causal";
  return mask;
}

Mask prefix_mask(std::int64_t seq_kv, std::int64_t prefix) {
  if (prefix < 0 || prefix > seq_kv)
    refuse(fmt::format("prefix {} does not fit (the sequence has {} keys): choose 0 to {}", prefix, seq_kv, seq_kv));
  return explicit_mask({{0, prefix, 0, prefix, -unbounded, unbounded}, {prefix, seq_kv, 0, seq_kv, 0, unbounded}},
                       fmt::format("prefix:{}", prefix));
}

Mask block_causal_mask(std::int64_t seq_kv, std::int64_t size) {
  if (size < 1)
    refuse(fmt::format("block-causal block of {} tokens (a block holds at least one): choose 1 or more", size));
  std::vector<Band> bands;
  for (std::int64_t begin = 0; begin < seq_kv; begin += size) {
    const std::int64_t end = seq_kv - begin < size ? seq_kv : begin + size;
    bands.push_back({begin, end, 0, end, -unbounded, unbounded});
    if (end == seq_kv) break;
  }
  return explicit_mask(std::move(bands), fmt::format("block-causal:{}", size));
}

Mask band_mask(std::vector<Band> bands) {
  for (Band& band : bands)
    for (std::int64_t* bound : {&band.q0, &band.q1, &band.k0, &band.k1, &band.lo, &band.hi})
      *bound = std::clamp(*bound, -unbounded, unbounded);
  check_disjoint(bands);
  return explicit_mask(std::move(bands), "bands");
}

void check(const Mask& mask, std::int64_t seq_kv) {
  if (mask.left < -1 || mask.right < -1)
    refuse(fmt::format("window {},{} (each side counts tokens): give 0 or more, or -1 for unlimited", mask.left,
                       mask.right));
  if (mask.sinks < 0) refuse(fmt::format("{} sinks (they count tokens): give 0 or more", mask.sinks));
  check_documents(mask.documents, seq_kv);
  if (!mask.explicit_bands) {
    if (!mask.given.empty())
      refuse("bands are given but not in force (explicit_bands is off): build the mask with band_mask");
    return;
  }
  const char* what = mask.left >= 0 || mask.right >= 0 ? "a window"
                     : mask.sinks > 0                  ? "global keys"
                     : !mask.documents.empty()         ? "documents"
                                                       : nullptr;
  if (what)
    refuse(fmt::format("mask {} with {} (it says itself what each query sees): leave that out, or write it into bands",
                       mask.name, what));
  check_bounds(mask.given);
  check_disjoint(mask.given);
}

std::vector<Band> bands_of(const Mask& mask) {
  std::vector<Band> out;
  if (mask.explicit_bands) {
    out = mask.given;
    std::stable_sort(out.begin(), out.end(), [](const Band& a, const Band& b) { return a.q0 < b.q0; });
  } else if (mask.documents.empty()) {
    add_document(mask, -unbounded, unbounded, out);
  } else {
    for (std::size_t d = 0; d + 1 < mask.documents.size(); ++d)
      add_document(mask, mask.documents[d], mask.documents[d + 1], out);
  }
  return out;
}

void BandIndex::Hull::add(std::int64_t last_q, std::int64_t first_k, std::int64_t last_k) {
  q1 = std::max(q1, last_q);
  k0 = std::min(k0, first_k);
  k1 = std::max(k1, last_k);
}

BandIndex::BandIndex(std::vector<Band> bands) : bands_(std::move(bands)) {
  std::stable_sort(bands_.begin(), bands_.end(), [](const Band& a, const Band& b) { return a.q0 < b.q0; });
  for (std::size_t below = bands_.size(); below > fan_out; below = hulls_.back().size()) {
    std::vector<Hull> hulls((below + fan_out - 1) / fan_out);
    for (std::size_t i = 0; i < below; ++i) {
      Hull& hull = hulls[i / fan_out];
      if (hulls_.empty()) {
        hull.add(bands_[i].q1, bands_[i].k0, bands_[i].k1);
      } else {
        hull.add(hulls_.back()[i].q1, hulls_.back()[i].k0, hulls_.back()[i].k1);
      }
    }
    hulls_.push_back(std::move(hulls));
  }
}

/// Calls visit(band), until that returns true, for the bands that may cover some of the pairs. Bands that end before
/// the queries, or lie beside the keys, are left out many at a time: below the root of a tree, which reaches to its
/// end, are nodes of which hardly any touches a tile.
template <class Visit>
void BandIndex::visit(const Run& queries, const Run& keys, Visit visit) const {
  if (queries.count <= 0 || keys.count <= 0) return;
  const std::int64_t q_first = queries.start, q_last = queries.at(queries.count - 1);
  const std::int64_t k_first = keys.start, k_last = keys.at(keys.count - 1);
  const auto may_cover = [&](const auto& each) { return each.q1 > q_first && each.k0 <= k_last && each.k1 > k_first; };
  const auto end =
      index(std::partition_point(bands_.begin(), bands_.end(), [&](const Band& band) { return band.q0 <= q_last; }) -
            bands_.begin());
  for (std::size_t i = 0; i < end;) {
    std::size_t skipped = 0;
    for (std::size_t level = 0, width = fan_out; level < hulls_.size() && i % width == 0; ++level, width *= fan_out) {
      if (may_cover(hulls_[level][i / width])) break;
      skipped = width;
    }
    if (skipped > 0) {
      i += skipped;
    } else {
      if (may_cover(bands_[i]) && visit(bands_[i])) return;
      ++i;
    }
  }
}

std::vector<Band> BandIndex::reaching(const Run& queries) const {
  std::vector<Band> bands;
  visit(queries, all_positions, [&](const Band& band) {
    bands.push_back(band);
    return false;
  });
  return bands;
}

void BandIndex::touching(const Run& queries, const Run& keys, std::vector<Band>& out) const {
  visit(queries, keys, [&](const Band& band) {
    if (touches(band, queries, keys)) out.push_back(band);
    return false;
  });
}

std::int64_t BandIndex::pairs(const Run& queries, const Run& keys) const {
  std::int64_t sum = 0;
  visit(queries, keys, [&](const Band& band) {
    sum += visible_pairs(band, queries, keys);
    return false;
  });
  return sum;
}

/// A block stands at its first query and sees as far as its last one.
std::int64_t BandIndex::computed_pairs(const Run& queries, const Run& keys, int block) const {
  const Run blocks{queries.start, ceil_div(queries.count, block), queries.stride * block};
  const std::int64_t to_last = queries.stride * (block - 1);
  std::int64_t sum = 0;
  visit(queries, keys, [&](Band band) {
    if (!touches(band, queries, keys)) return false;
    band.q0 -= to_last;
    band.lo -= to_last;
    sum += block * visible_pairs(band, blocks, keys);
    return false;
  });
  return sum;
}

BandIndex::Reach BandIndex::reach(const Run& queries, const Run& keys) const {
  Reach sum;
  visit(queries, keys, [&](const Band& band) {
    if (!touches(band, queries, keys)) return false;
    const std::int64_t q_first = std::max(band.q0, queries.at(0)), q_end = std::min(band.q1, queries.at(queries.count));
    const std::int64_t k_first = std::max(band.k0, keys.at(0)), k_end = std::min(band.k1, keys.at(keys.count));
    const IndexRange seeing =
        indices_within(queries, std::max(q_first, k_first + band.lo), std::min(q_end, k_end + band.hi));
    const IndexRange seen =
        indices_within(keys, std::max(k_first, q_first - band.hi), std::min(k_end, q_end - band.lo));
    sum.queries += seeing.end - seeing.begin;
    sum.keys += seen.end - seen.begin;
    return false;
  });
  return {std::min(sum.queries, queries.count), std::min(sum.keys, keys.count)};
}

bool BandIndex::any(const Run& queries, const Run& keys) const {
  bool any = false;
  visit(queries, keys, [&](const Band& band) { return any = touches(band, queries, keys); });
  return any;
}

}  // namespace distattn
