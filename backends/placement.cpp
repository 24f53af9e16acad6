#include "backends/placement.hpp"

#include "distattn/access.hpp"
#include "distattn/mask.hpp"

namespace distattn::backends {
namespace {

std::vector<bool> movable(const BufferTable& buffers) {
  const Sharding& sharding = buffers.outline().sharding;
  const BandIndex mask(bands_of(sharding.problem.mask));
  return use_in_place(buffers.outline(), buffers.program(), [&](SegmentId query, SegmentId key) {
    return mask.pairs(sharding.queries[index(query)].run, sharding.keys[index(key)].run);
  });
}

}  // namespace

Placement::Placement(const BufferTable& buffers) : may_move_(movable(buffers)) {
  for (std::size_t buffer = 0; buffer < buffers.program().buffers.size(); ++buffer) {
    first_.push_back(slots_.size());
    for (const BufferTable::Part& part : buffers.parts(static_cast<BufferId>(buffer))) {
      slots_.push_back(
          kernels::packed_rows(static_cast<void*>(part.data), part.shape.heads, part.shape.tokens, part.shape.dim));
    }
  }
  rows_ = slots_;
}

}  // namespace distattn::backends
