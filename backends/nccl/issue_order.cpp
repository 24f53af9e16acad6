#include "backends/nccl/issue_order.hpp"

namespace distattn::backends::nccl {

/// The first exchange over NCCL at `step` or behind it.
std::size_t IssueOrder::exchange_from(const RankProgram& program, std::size_t step) const {
  const auto is_exchange = [this](Lane lane) {
    return lane == Lane::near || (lane == Lane::far && lanes_ == Lanes::both);
  };
  while (step < program.steps.size() && !is_exchange(program.steps[step].lane)) ++step;
  return step;
}

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
