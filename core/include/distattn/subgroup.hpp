#pragma once
/// Some of a transport's ranks as a transport of their own, so that groups of ranks can compute attentions
/// concurrently.

#include <array>
#include <span>
#include <vector>

#include "distattn/engine.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Forwards each step to the parent transport, with ranks translated to the parent's numbering. Groups that share ranks
/// may take turns, in the same order on all shared ranks. A failure of one group's exchange ends the parent transport
/// too; errors name ranks of the parent.
class Subgroup final : public ForwardingTransport {
 public:
  /// The group's rank i is rank members[i] of `whole`, which must outlive the group. Throws Error(usage) unless the
  /// members are distinct ranks of `whole` and include its own. Every member must pass the same list.
  Subgroup(Transport& whole, std::vector<Rank> members);

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override;

 private:
  const std::vector<Rank> members_;
  Rank rank_ = 0;
  std::array<Step, lane_count> renamed_;  // each lane's last step in the parent's numbering; keeps its memory
};

}  // namespace distattn
#pragma GCC visibility pop
