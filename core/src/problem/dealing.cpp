#include "distattn/dealing.hpp"

#include <algorithm>

namespace distattn {

std::int64_t Dealing::stored(std::int64_t tokens, Rank rank) const {
  const std::int64_t round = block * ranks;
  return tokens / round * block + std::clamp<std::int64_t>(tokens % round - rank * block, 0, block);
}

}  // namespace distattn
