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
  if (window.empty()) return touches.size();
  const std::int64_t first_key = keys.at(window.begin), last_key = keys.at(window.end - 1);
  const auto is_alike = [&](const Touch& touch) {
    return touch.side == touches.front().side && touch.level == touches.front().level;
  };
  std::size_t count = 0;
  for (; count < touches.size() && is_alike(touches[count]); ++count) {
    const Band& band = bands[index(touches[count].band)];
    if (band.k1 <= first_key || last_key < band.k0) continue;
    const IndexRange rows = band_rows(band, queries);
    if (!rows.empty()) visible_ranges(band, queries, rows, keys, window, begin, end);
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
            {static_cast<std::int32_t>(at), static_cast<std::int32_t>(side), 0, static_cast<std::int32_t>(band)});
      }
    }
  }
  std::sort(touches.begin() + static_cast<std::ptrdiff_t>(first_touch), touches.end());
  std::size_t at = first_touch;
  for (std::size_t block = first_block; block < blocks.size(); ++block) {
    blocks[block].touches = at;
    while (at < touches.size() && index(touches[at].block) == block) ++at;
    blocks[block].touches_end = at;
    if (blocks[block].touches_end - blocks[block].touches > 1) find_levels(blocks[block], queries, sides);
  }
}

/// A band is one level above those before it that reach one of its queries.
void QueryBlocks::find_levels(const QueryBlock& block, const Run& queries, std::span<const KeySide> sides) {
  const std::span all(touches.data() + block.touches, block.touches_end - block.touches);
  const Run part = part_of(queries, block.first, block.rows);
  std::int32_t side = -1;
  for (Touch& touch : all) {
    if (touch.side != side) levels_.assign(index(block.rows), 0);
    side = touch.side;
    const IndexRange rows = band_rows(sides[index(side)].bands[index(touch.band)], part);
    if (rows.empty()) continue;
    const std::span reached(levels_.data() + rows.begin, index(rows.end - rows.begin));
    for (const std::int32_t level : reached) touch.level = std::max(touch.level, level);
    std::ranges::fill(reached, touch.level + 1);
  }
  std::ranges::sort(all);
}

}  // namespace distattn::kernels::vector
