#pragma once
/// A host device's kernels and threads, which its programs use in turn, and what ends them.

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>

#include <fmt/core.h>

#include "backends/staging_kernels.hpp"
#include "distattn/error.hpp"
#include "kernels/kernels.hpp"

namespace distattn::backends {

void fill_all(std::span<const kernels::FillArgs> operations);

class Workers final : public StagingKernels {
 public:
  Workers(const kernels::HostKernels& kernels, int threads) : kernels_(kernels), team_(threads) {}

  const kernels::HostKernels& kernels() const { return kernels_; }
  int threads() const { return team_.size(); }

  void compute(std::span<const kernels::AttendArgs> list) { in_turn(kernels_.attend, list); }
  void compute(std::span<const kernels::AttendBackwardArgs> list) { in_turn(kernels_.attend_backward, list); }
  void compute(std::span<const kernels::MergeArgs> list) { in_turn(kernels_.merge, list); }
  void compute(std::span<const kernels::AccumulateArgs> list) { in_turn(kernels_.accumulate, list); }
  void compute(std::span<const kernels::ConvertArgs> list) { in_turn(kernels_.convert, list); }
  static void compute(std::span<const kernels::FillArgs> list) { fill_all(list); }
  void rearrange(std::span<const kernels::RearrangeArgs> list) override { in_turn(kernels_.rearrange, list); }
  void delta(std::span<const kernels::DeltaArgs> list) override { in_turn(kernels_.delta, list); }
  void accumulate(std::span<const kernels::AccumulateArgs> list) override { in_turn(kernels_.accumulate, list); }
  void share(std::span<const kernels::ShareArgs> list) override { in_turn(kernels_.share, list); }
  void settle(std::span<const kernels::SettleArgs> list) override { in_turn(kernels_.settle, list); }
  void merge_sinks(std::span<const kernels::SinkArgs> list) override { in_turn(kernels_.merge_sinks, list); }
  void differentiate_sinks(std::span<const kernels::SinkGradientArgs> list) override {
    in_turn(kernels_.differentiate_sinks, list);
  }
  void fill(const kernels::FillArgs& args) override { fill_all({&args, 1}); }
  void clear(void* into, std::size_t bytes) override { std::memset(into, 0, bytes); }

  void end(const Error& error) noexcept {
    const std::scoped_lock lock(mutex_);
    if (!reason_) reason_ = error;
    stop_ = true;
  }
  void throw_if_ended() const {
    if (!stop_.load(std::memory_order_relaxed)) return;
    const std::scoped_lock lock(mutex_);
    throw Error(reason_->kind(), fmt::format("ended ({})", reason_->what()));
  }

 private:
  template <class Args>
  void in_turn(kernels::HostKernel<Args> kernel, std::span<const Args> list) {
    const std::scoped_lock turn(turn_);
    kernel(list, team_, stop_);
  }

  const kernels::HostKernels& kernels_;
  std::mutex turn_;  // guards team_
  kernels::Team team_;
  kernels::StopFlag stop_{false};
  mutable std::mutex mutex_;  // guards reason_
  std::optional<Error> reason_;
};

}  // namespace distattn::backends
