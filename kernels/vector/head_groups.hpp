#pragma once
/// Query heads that read one key head: what is brought or packed once serves all of them.

#include <algorithm>

#include "distattn/band.hpp"
#include "kernels/arguments.hpp"

namespace distattn::kernels::vector {

/// Calls each(head, heads) for groups of query heads that read one key head, each of them in as few and as equal parts
/// as have at most `most` heads.
template <class Each>
void for_each_group(const Heads& heads, int most, Each each) {
  for (int first = 0, last = 0; first < heads.q_count; first = last) {
    while (last < heads.q_count && heads.kv_of(last) == heads.kv_of(first)) ++last;
    const auto parts_of = [&](int size) { return static_cast<int>(ceil_div(last - first, size)); };
    const int part = parts_of(parts_of(most));
    for (int head = first; head < last; head += part) each(head, std::min(part, last - head));
  }
}

}  // namespace distattn::kernels::vector
