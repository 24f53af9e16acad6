#include "backends/nccl/issue_order.hpp"

#include <tuple>

namespace distattn::backends::nccl {
namespace {

/// What no other exchange of a program has: verify() proves it. A group of ranks hands over copies of its steps.
auto key_of(const Step& step) { return std::tuple(step.number, step.lane, step.due); }

}  // namespace

/// The first exchange over NCCL at `step` or behind it.
std::size_t IssueOrder::exchange_from(const RankProgram& program, std::size_t step) const {
  const auto is_exchange = [this](Lane lane) {
    return lane == Lane::near || (lane == Lane::far && lanes_ == Lanes::both);
  };
  while (step < program.steps.size() && !is_exchange(program.steps[step].lane)) ++step;
  return step;
}

std::size_t IssueOrder::next_of(const BufferTable& buffers) const {
  const auto found = next_.find(&buffers);
  return found != next_.end() ? found->second : exchange_from(buffers.program(), 0);
}

bool IssueOrder::is_next(const Step& step, const BufferTable& buffers) const {
  return key_of(step) == key_of(buffers.program().steps[next_of(buffers)]);
}

void IssueOrder::pass(const BufferTable& buffers) {
  const std::size_t next = exchange_from(buffers.program(), next_of(buffers) + 1);
  if (next < buffers.program().steps.size()) {
    next_[&buffers] = next;
  } else {
    next_.erase(&buffers);
  }
}

}  // namespace distattn::backends::nccl
