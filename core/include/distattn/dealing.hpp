#pragma once
/// Which rank stores which tokens of a sequence that grows.

#include <cstdint>

#include "distattn/types.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// The tokens that each rank stores: blocks of `block` tokens are dealt to the ranks in turn, from rank 0 on, so
/// that a token stays on its rank, and in its place there, while the sequence grows ("striped:B").
struct Dealing {
  std::int64_t block = 1;
  int ranks = 1;

  /// How many of a sequence's first `tokens` tokens `rank` stores: the number of the next one in its cache, if that is
  /// its own.
  std::int64_t stored(std::int64_t tokens, Rank rank) const;
  Rank owner(std::int64_t token) const { return static_cast<Rank>(token / block % ranks); }
};

}  // namespace distattn
#pragma GCC visibility pop
