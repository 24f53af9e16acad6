#pragma once
/// The parts of a problem that a mask separates: packed documents, or groups of bands that share no query and no key.

#include <cstdint>
#include <vector>

#include "distattn/problem.hpp"

namespace distattn {

struct MaskGroups {
  /// Ranges from the first position to one past the last.
  struct Group {
    IndexRange queries, keys;
  };
  std::vector<Group> groups;  ///< documents in order, including empty ones; without documents, by first query
  /// For each token, counted from the first: its group, or -1 for a query that sees nothing or a key that nothing sees.
  std::vector<std::int32_t> of_query, of_key;
};

/// Takes time O(tokens + n log n) for n bands.
MaskGroups groups_of(const Problem& problem);

}  // namespace distattn
