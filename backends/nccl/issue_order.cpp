#include "backends/nccl/issue_order.hpp"

namespace distattn::backends::nccl {
namespace {

/// The first exchange at `step` or behind it.
std::size_t exchange_from(const RankProgram& program, std::size_t step) {
  while (step < program.steps.size() && program.steps[step].lane == Lane::compute) ++step;
  return step;
}

}  // namespace

bool IssueOrder::is_next(const Step& step, const BufferTable& buffers) const {
  const auto found = next_.find(&buffers);
  const std::size_t next = found != next_.end() ? found->second : exchange_from(buffers.program(), 0);
  return buffers.index_of(step) == next;
}

void IssueOrder::pass(const Step& step, const BufferTable& buffers) {
  const std::size_t next = exchange_from(buffers.program(), buffers.index_of(step) + 1);
  if (next < buffers.program().steps.size()) {
    next_[&buffers] = next;
  } else {
    next_.erase(&buffers);
  }
}

}  // namespace distattn::backends::nccl
