#pragma once
/// What a device does for serving (serving.hpp): it reads caches of keys and values where they lie.

#include <cstddef>
#include <cstdint>
#include <span>

#include "distattn/band.hpp"
#include "distattn/problem.hpp"
#include "distattn/tensor.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Partial results of some rows: o [rows, value_dim], lse and lse_low [rows], in the problem's accumulator
/// (partial.hpp). lse_low is null where the problem has none.
struct CachePartial {
  std::int64_t rows = 0;
  std::byte* o = nullptr;
  std::byte* lse = nullptr;
  std::uint16_t* lse_low = nullptr;
};

/// A request's queries, and what the rank's cache holds of its keys. Writes the partial result over these keys, whose
/// rows are [heads, queries].
struct CacheRead {
  const std::byte* q = nullptr;  ///< [heads, queries, head_dim] of the problem's type
  Run queries;                   ///< their positions
  /// [pages, tokens of a page, kv_heads, dim] of the problem's type: key j lies in row j mod tokens of page
  /// pages[j / tokens], or, without `pages`, in row j of the only page.
  ConstTensorView k{}, v{};
  std::span<const std::int32_t> pages{};
  std::int64_t keys = 0;        ///< in this cache
  std::span<const Band> bands;  ///< which query sees which key: of positions and of numbers j; disjoint
  CachePartial into{};
};

/// Rows of a tensor [1, tokens, heads, dim] and the same packed as [heads, tokens, dim].
struct CacheRows {
  ConstTensorView tensor{};
  std::byte* packed = nullptr;
};
struct CacheResult {
  CachePartial from{};
  TensorView o{}, lse{}, lse_low{};  ///< [1, tokens, heads, dim or 1]; without data: not wanted
};

/// Each function does a list of independent operations and returns when they are done. All memory is the host's. Used
/// by one thread at a time; Device::abort() ends what is in progress.
class CacheReader {
 public:
  virtual ~CacheReader() = default;
  /// Converts to the problem's type.
  virtual void pack(const Problem& problem, std::span<const CacheRows> operations) = 0;
  virtual void read(const Problem& problem, std::span<const CacheRead> operations) = 0;
  /// into ⊕= from.
  virtual void merge(const Problem& problem, const CachePartial& into, const CachePartial& from) = 0;
  /// Adds the sinks, if the problem has them ([1, 1, heads, 1]), and converts to the types of the tensors.
  virtual void unpack(const Problem& problem, const ConstTensorView& sink_logits,
                      std::span<const CacheResult> operations) = 0;
};

}  // namespace distattn
#pragma GCC visibility pop
