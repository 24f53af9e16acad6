#include "kernels/vector/blocks.hpp"

#include <algorithm>

#include "distattn/index.hpp"
#include "kernels/vector/ranges.hpp"

namespace distattn::kernels::vector {

std::size_t ranges_of_pass(std::span<const Touch> touches, std::span<const Band> bands, const Run& queries,
                           const Run& keys, IndexRange window, std::span<std::int32_t> begin,
                           std::span<std::int32_t> end) {
  std::fill(begin.begin(), begin.end(), 0);
  std::fill(end.begin(), end.end(), 0);
  std::size_t count = 0;
  std::int64_t reached = 0;
  for (; count < touches.size() && touches[count].side == touches.front().side; ++count) {
    const Band& band = bands[index(touches[count].band)];
    const IndexRange rows = band_rows(band, queries);
    if (rows.empty()) continue;
    if (rows.begin < reached) break;
    reached = rows.end;
    visible_ranges(band, queries, rows, keys, window, begin, end);
  }
  return count;
}

void QueryBlocks::clear() {
  blocks.clear();
  touches.clear();
}

void QueryBlocks::cut(std::int32_t operation, const Run& queries, std::span<const KeySide> sides, std::int64_t rows) {
  const std::size_t first_block = blocks.size();
  for (std::int64_t first = 0; first < queries.count; first += rows) {
    const auto count = static_cast<std::int32_t>(std::min(rows, queries.count - first));
    blocks.push_back({operation, count, first, touches.size(), touches.size(), 0});
  }
  const std::size_t first_touch = touches.size();
  for (std::size_t side = 0; side < sides.size(); ++side) {
    const auto& bands = sides[side].bands;
    for (std::size_t band = 0; band < bands.size(); ++band) {
      const IndexRange reached = band_rows(bands[band], queries);
      if (reached.empty()) continue;
      for (std::int64_t i = reached.begin / rows; i <= (reached.end - 1) / rows; ++i) {
        const std::size_t at = first_block + index(i);
        const Run part = part_of(queries, blocks[at].first, blocks[at].rows);
        if (classify(bands[band], part, sides[side].keys) == Coverage::skip) continue;
        blocks[at].pairs += visible_pairs(bands[band], part, sides[side].keys);
        touches.push_back(
            {static_cast<std::int32_t>(at), static_cast<std::int32_t>(side), static_cast<std::int32_t>(band)});
      }
    }
  }
  std::sort(touches.begin() + static_cast<std::ptrdiff_t>(first_touch), touches.end());
  std::size_t at = first_touch;
  for (std::size_t block = first_block; block < blocks.size(); ++block) {
    blocks[block].touches = at;
    while (at < touches.size() && index(touches[at].block) == block) ++at;
    blocks[block].touches_end = at;
  }
}

}  // namespace distattn::kernels::vector
