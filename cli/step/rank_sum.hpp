#pragma once
/// Sums over ranks, in the order of ranks: the same bits on every rank and in every run.

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "distattn/bootstrap.hpp"
#include "distattn/error.hpp"

namespace distattn::step {

/// Every rank's `mine`, by rank. T has no pointers; collective.
template <class T>
std::vector<T> all_gather(Bootstrap& bootstrap, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> values(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != sizeof(T)) {
      throw Error(ErrorKind::peer,
                  "rank " + std::to_string(rank) + " sent figures of another size (it runs another version)");
    }
    std::memcpy(&values[rank], all[rank].data(), sizeof(T));
  }
  return values;
}

/// values = Σ over ranks of their values, rank 0 first. Collective; works in pieces, so that the memory of all ranks'
/// gradients is never needed at once.
inline void sum_over_ranks(Bootstrap& bootstrap, std::span<float> values) {
  if (bootstrap.size() == 1) return;
  constexpr std::size_t piece = std::size_t{1} << 20;
  std::vector<float> theirs;
  for (std::size_t first = 0; first < values.size(); first += piece) {
    const auto part = values.subspan(first, std::min(piece, values.size() - first));
    const auto all = bootstrap.all_gather(std::as_bytes(part));
    theirs.resize(part.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].size() != part.size_bytes()) {
        throw Error(ErrorKind::peer, "rank " + std::to_string(rank) + " sent gradients of another model");
      }
      std::memcpy(theirs.data(), all[rank].data(), part.size_bytes());
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = rank == 0 ? theirs[i] : part[i] + theirs[i];
    }
  }
}

}  // namespace distattn::step
