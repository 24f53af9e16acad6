#include "distattn/access.hpp"

namespace distattn {

std::vector<bool> touched_by_tiles_alone(const RankProgram& program) {
  std::vector<bool> by_tiles(program.buffers.size()), otherwise(program.buffers.size());
  for (const Step& step : program.steps) {
    for (const Op& op : step.ops) {
      const bool tile = std::holds_alternative<Attend>(op) || std::holds_alternative<AttendBackward>(op);
      for_each_access(op, [&](BufferId buffer, Access) { (tile ? by_tiles : otherwise)[index(buffer)] = true; });
    }
  }
  for (std::size_t buffer = 0; buffer < by_tiles.size(); ++buffer) {
    by_tiles[buffer] = by_tiles[buffer] && !otherwise[buffer];
  }
  return by_tiles;
}

}  // namespace distattn
