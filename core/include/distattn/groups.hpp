#pragma once
/// What a mask keeps apart: packed documents, or groups of bands that share no query and no key.

#include <cstdint>
#include <vector>

#include "distattn/problem.hpp"

#pragma GCC visibility push(default)
namespace distattn {

struct MaskGroups {
  /// From the first to behind the last position of either side.
  struct Group {
    IndexRange queries, keys;
  };
  std::vector<Group> groups;  ///< documents in their order, empty ones too; else by first query
  /// By token, counted from the first: the group that it belongs to, or -1 where it sees nothing or nothing sees it.
  std::vector<std::int32_t> of_query, of_key;
};

/// In time that grows with the tokens and with n log n of n bands.
MaskGroups groups_of(const Problem& problem);

}  // namespace distattn
#pragma GCC visibility pop
