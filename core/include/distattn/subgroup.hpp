#pragma once
/// Some of a transport's ranks as a transport of their own, so that groups of ranks attend side by side.

#include <array>
#include <span>
#include <vector>

#include "distattn/engine.hpp"

#pragma GCC visibility push(default)
namespace distattn {

/// Passes every step on to the whole transport, with the ranks that those are called there. Groups that share ranks
/// may take turns, in the same order on all ranks that they share. What ends one group's exchange ends the whole
/// transport's; failures name the ranks of the whole.
class Subgroup final : public ForwardingTransport {
 public:
  /// The group's rank i is rank members[i] of `whole`, which must outlive the group. Throws Error(usage) unless the
  /// members are different ranks of `whole` and its own is one of them. Every member must give the same list.
  Subgroup(Transport& whole, std::vector<Rank> members);

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override;

 private:
  const std::vector<Rank> members_;
  Rank rank_ = 0;
  std::array<Step, lane_count> renamed_;  // each lane's last step as the whole has it; keeps its memory
};

}  // namespace distattn
#pragma GCC visibility pop
