#include "backends/kokkos/spaces/launches.hpp"

#include <variant>

namespace distattn::backends {
namespace {

using kernels::portable::ListPacker;
using kernels::portable::SpaceLaunch;

/// The launches of one step.
class Builder {
 public:
  Builder(ListPacker& lists, std::vector<SpaceLaunch>& launches) : lists_(lists), launches_(launches) {}

  void add(const std::vector<kernels::AttendArgs>& operations) { launches_.push_back(lists_.attend(operations)); }
  void add(const std::vector<kernels::AttendBackwardArgs>& operations) {
    for (const kernels::AttendBackwardArgs& args : operations) clear_sums(args);
    launches_.push_back(lists_.key_gradients(operations));
    launches_.push_back(lists_.query_gradients(operations));
  }
  template <class Args>
  void add(const std::vector<Args>& operations) {
    for (const Args& args : operations) launches_.push_back(args);
  }

 private:
  /// Nothing is left out of dq.
  void clear_sums(const kernels::AttendBackwardArgs& args) {
    if (args.carry) return;
    const std::int64_t rows = args.shape.batch * args.shape.heads.q_count * args.queries.count;
    for (float* const each : {args.sums, args.squares}) {
      if (each != nullptr) launches_.push_back(kernels::FillArgs{DType::fp32, each, rows, 0});
    }
  }

  ListPacker& lists_;
  std::vector<SpaceLaunch>& launches_;
};

std::vector<std::vector<SpaceLaunch>> build(const Batches& batches, std::size_t steps, ListPacker& lists) {
  std::vector<std::vector<SpaceLaunch>> all(steps);
  for (std::size_t step = 0; step < steps; ++step) {
    Builder builder(lists, all[step]);
    for (const Batch& batch : batches.of(step)) {
      std::visit([&](const auto& operations) { builder.add(operations); }, batch);
    }
  }
  return all;
}

}  // namespace

SpaceLaunches::SpaceLaunches(const Batches& batches, std::size_t steps, kernels::portable::SpaceDevice& space,
                             SpaceStreams& streams, SpaceStream& stream, const kernels::Dropout* dropout) {
  // Lists name each other by address: they are made once to count them, and once where they will lie.
  ListPacker counted(nullptr, space.fast_bytes(), dropout);
  build(batches, steps, counted);
  if (!counted.bytes().empty()) device_lists_ = streams.allocate(counted.bytes().size(), space.space());
  ListPacker placed(device_lists_.get(), space.fast_bytes(), dropout);
  steps_ = build(batches, steps, placed);
  lists_ = placed.bytes();
  if (!lists_.empty()) stream.copy(device_lists_.get(), lists_.data(), lists_.size());
}

void SpaceLaunches::start(std::size_t step, SpaceStream& stream) const {
  stream.append([launches = &steps_[step]](kernels::portable::SpaceQueue& queue) {
    for (const SpaceLaunch& launch : *launches) queue.start(launch);
  });
}

}  // namespace distattn::backends
