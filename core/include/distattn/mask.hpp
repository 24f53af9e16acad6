#pragma once
/// Masks as users describe them, and the disjoint bands that the rest of the library uses (docs/mathematics.md).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "distattn/band.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// visible(q,k) = (not causal or k ≤ q) and (−right ≤ q−k ≤ left or k < sinks) and document(q) = document(k),
/// or exactly the given bands. Positions are absolute; queries hold the last seq_q of seq_kv positions.
struct Mask {
  bool causal = true;
  std::int64_t left = -1;                 ///< sliding window over earlier keys; −1: unlimited
  std::int64_t right = -1;                ///< … over later keys; −1: unlimited
  std::int64_t sinks = 0;                 ///< the first keys that stay visible outside the window
  std::vector<std::int64_t> documents{};  ///< cu_seqlens: 0, …, seq_kv, never falling; empty: one document
  std::vector<Band> given{};              ///< explicit bands within ±unbounded; excludes window, sinks and documents
  bool explicit_bands = false;            ///< `given` is the mask (and may be empty: nothing is visible)
  std::string name{};                     ///< the user's notation, for reports

  /// Compares all members except the name.
  friend bool operator==(const Mask& a, const Mask& b) {
    const auto said = [](const Mask& mask) {
      return std::tie(mask.causal, mask.left, mask.right, mask.sinks, mask.documents, mask.given, mask.explicit_bands);
    };
    return said(a) == said(b);
  }
};

Mask full_mask();
Mask causal_mask();
/// The first `prefix` tokens see each other both ways; the rest is causal. With more queries than keys, those before
/// the first key see nothing, the prefix included.
Mask prefix_mask(std::int64_t seq_kv, std::int64_t prefix);
/// Each block (video frame) of `size` tokens sees itself both ways, and all earlier blocks.
Mask block_causal_mask(std::int64_t seq_kv, std::int64_t size);
/// Explicit bands; throws Error(usage) naming two of them if they overlap. Bounds past ±unbounded mean unbounded.
Mask band_mask(std::vector<Band> bands);
/// Bands as users write them in a file: half-open ranges, inclusive differences, null for no bound:
/// [{"q":[0,512],"k":[0,512],"diff":[0,null]}]. Throws Error(usage), naming `origin`, as band_mask does.
Mask mask_from_json(std::string_view text, const std::string& origin);

/// Throws Error(usage) if options contradict each other or documents do not fit seq_kv.
void check(const Mask& mask, std::int64_t seq_kv);

/// The mask as disjoint bands, ordered by first query.
std::vector<Band> bands_of(const Mask& mask);

/// Two bands that share a pair, as indices into `bands`, or {-1, -1}. O(n log n).
std::pair<std::ptrdiff_t, std::ptrdiff_t> overlapping_bands(std::span<const Band> bands);

/// Finds the bands that a tile touches without visiting all others. Of thousands of packed documents, or nodes of a
/// tree, it visits those between a tile's first query and its last and between its first key and its last; with strided
/// queries and keys these are all. Immutable after construction; safe to share between threads.
class BandIndex {
 public:
  BandIndex() = default;
  explicit BandIndex(std::vector<Band> bands);

  std::span<const Band> bands() const { return bands_; }
  /// The bands that may cover some of `queries`, in order.
  std::vector<Band> reaching(const Run& queries) const;
  /// Appends to `out` every band that has a visible pair in queries × keys, in order.
  void touching(const Run& queries, const Run& keys, std::vector<Band>& out) const;
  /// Number of visible pairs of queries × keys.
  std::int64_t pairs(const Run& queries, const Run& keys) const;
  /// Pairs computed by a kernel that processes `block` queries at a time, band by band: every query of a block is
  /// evaluated against every key visible to any query of that block. The last block counts as a whole one; block 1
  /// gives pairs().
  std::int64_t computed_pairs(const Run& queries, const Run& keys, int block) const;
  /// How many of `queries` see a key of `keys`, and how many of `keys` are seen by one of them.
  struct Reach {
    std::int64_t queries = 0, keys = 0;
  };
  /// Upper bounds: too large if several bands cover the same queries or keys, or if a band falls between strided
  /// positions.
  Reach reach(const Run& queries, const Run& keys) const;
  /// Whether queries × keys has a visible pair.
  bool any(const Run& queries, const Run& keys) const;

 private:
  /// What bands one after the other may cover.
  struct Hull {
    std::int64_t q1 = -unbounded, k0 = unbounded, k1 = -unbounded;
    void add(std::int64_t last_q, std::int64_t first_k, std::int64_t last_k);
  };
  template <class Visit>
  void visit(const Run& queries, const Run& keys, Visit visit) const;

  std::vector<Band> bands_;               // by q0
  std::vector<std::vector<Hull>> hulls_;  // of fan_out bands each; of fan_out of those; and so on
};

}  // namespace distattn
#pragma GCC visibility pop
