#include "backends/placement.hpp"

#include "distattn/access.hpp"

namespace distattn::backends {
namespace {

bool attends(const Op& op) { return std::holds_alternative<Attend>(op) || std::holds_alternative<AttendBackward>(op); }

std::vector<bool> only_attended(const RankProgram& program) {
  std::vector<bool> attended(program.buffers.size()), otherwise(program.buffers.size());
  for (const Step& step : program.steps) {
    for (const Op& op : step.ops) {
      for_each_access(op, [&](BufferId buffer, Access) { (attends(op) ? attended : otherwise)[index(buffer)] = true; });
    }
  }
  for (std::size_t buffer = 0; buffer < attended.size(); ++buffer) {
    attended[buffer] = attended[buffer] && !otherwise[buffer];
  }
  return attended;
}

}  // namespace

Placement::Placement(const BufferTable& buffers) : may_move_(only_attended(buffers.program())) {
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
