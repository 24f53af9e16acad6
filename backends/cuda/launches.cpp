#include "backends/cuda/launches.hpp"

#include <algorithm>
#include <cstring>

#include "distattn/index.hpp"
#include "kernels/cuda/elementwise.hpp"

namespace distattn::backends::cuda {
namespace {

using kernels::cuda::AttendKernel;
using kernels::cuda::AttendPlan;
using kernels::cuda::AttendRequest;
using kernels::cuda::TilePass;

constexpr std::size_t list_alignment = 256;

/// A launch whose lists have a place in the upload, but no address yet.
struct Planned {
  std::size_t step, launch, offset;
  AttendPlan plan;
};

/// Operations of one list that differ in shape (head groups do) become several launches.
template <class Args>
std::vector<std::vector<Args>> by_shape(std::span<const Args> operations) {
  std::vector<std::vector<Args>> lists;
  for (const Args& args : operations) {
    const auto same =
        std::find_if(lists.begin(), lists.end(), [&](const auto& list) { return list.front().shape == args.shape; });
    (same != lists.end() ? *same : lists.emplace_back()).push_back(args);
  }
  return lists;
}

/// Of operations of one shape.
template <class Args>
TileWork work_of(const std::vector<Args>& operations) {
  TileWork work{operations.front().shape, 0, Coverage::full};
  for (const Args& args : operations) {
    work.queries = std::max(work.queries, args.queries.count);
    for (const kernels::KeySide& side : args.keys) {
      if (coverage_of(side.bands, args.queries, side.keys) != Coverage::full) work.coverage = Coverage::partial;
    }
  }
  return work;
}

/// Turns batches into launches, step by step.
class Builder {
 public:
  Builder(std::vector<std::vector<Launch>>& steps, AttendProvider* provider, const KernelChoice& choice)
      : steps_(steps), provider_(provider), choice_(choice) {}

  void begin_step() { steps_.emplace_back(); }

  void add(const std::vector<kernels::AttendArgs>& operations) {
    if (provider_ != nullptr) return add_provided(operations);
    for (const auto& list : by_shape<kernels::AttendArgs>(operations)) {
      for (const AttendKernel* kernel : tile_kernels(Pass::forward, work_of(list), choice_)) {
        add(*kernel, AttendPlan(list, kernel->tile, kernel->describe));
      }
    }
  }
  void add(const std::vector<kernels::AttendBackwardArgs>& operations) {
    clear_sums(operations);
    if (provider_ != nullptr) return add_provided(operations);
    for (const auto& list : by_shape<kernels::AttendBackwardArgs>(operations)) {
      for (const AttendKernel* kernel : tile_kernels(Pass::backward, work_of(list), choice_)) {
        if (kernel->pass == TilePass::gradients) clear_query_gradients(list);
        add(*kernel, AttendPlan(list, kernel->owner, kernel->tile, kernel->describe));
      }
    }
  }
  template <class Args>
  void add(const std::vector<Args>& operations) {
    for (const Args& args : operations) steps_.back().push_back(args);
  }

  std::vector<std::byte> lists() const {
    std::vector<std::byte> bytes(end_);
    for (const Planned& planned : planned_) {
      std::memcpy(bytes.data() + planned.offset, planned.plan.bytes().data(), planned.plan.bytes().size());
    }
    return bytes;
  }
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  void place_scratch(std::byte* scratch) {
    for (std::vector<Launch>& step : steps_) {
      for (Launch& launch : step) {
        if (auto* const provided = std::get_if<ProvidedLaunch>(&launch)) provided->scratch = scratch;
      }
    }
  }
  void place_lists(const std::byte* lists, const LaunchFlags& flags) {
    for (const Planned& planned : planned_) {
      std::get<TileLaunch>(steps_[planned.step][planned.launch]).params =
          planned.plan.params(lists + planned.offset, flags.stop, flags.draw);
    }
  }

 private:
  template <class Args>
  void add_provided(const std::vector<Args>& operations) {
    for (const Args& args : operations) {
      std::shared_ptr<const PreparedAttend> attend = provider_->prepare(args);
      scratch_bytes_ = std::max(scratch_bytes_, attend->scratch_bytes());
      steps_.back().push_back(ProvidedLaunch{std::move(attend)});
    }
  }
  /// Nothing is left out of dq.
  void clear_sums(const std::vector<kernels::AttendBackwardArgs>& operations) {
    for (const kernels::AttendBackwardArgs& args : operations) {
      const std::int64_t rows = args.shape.batch * args.shape.heads.q_count * args.queries.count;
      if (!args.carry && args.sums != nullptr)
        steps_.back().push_back(kernels::FillArgs{DType::fp32, args.sums, rows, 0});
    }
  }
  /// For a kernel that only adds.
  void clear_query_gradients(const std::vector<kernels::AttendBackwardArgs>& operations) {
    for (const kernels::AttendBackwardArgs& args : operations) {
      const kernels::TileShape& shape = args.shape;
      const std::int64_t count = shape.batch * shape.heads.q_count * args.queries.count * shape.head_dim;
      if (!args.carry) steps_.back().push_back(kernels::FillArgs{DType::fp32, args.dq.data, count, 0});
    }
  }
  void add(const AttendKernel& kernel, AttendPlan plan) {
    if (plan.grid() == 0) return;
    steps_.back().push_back(TileLaunch{&kernel, {}, plan.grid()});
    const std::size_t bytes = plan.bytes().size();
    planned_.push_back({steps_.size() - 1, steps_.back().size() - 1, end_, std::move(plan)});
    end_ += (bytes + list_alignment - 1) / list_alignment * list_alignment;
  }

  std::vector<std::vector<Launch>>& steps_;
  AttendProvider* provider_;
  const KernelChoice& choice_;
  std::vector<Planned> planned_;
  std::size_t end_ = 0, scratch_bytes_ = 0;
};

struct Starter {
  const Driver& driver;
  Stream& stream;

  void operator()(const TileLaunch& launch) const {
    driver.check(launch.kernel->launch(launch.params, launch.grid, stream.handle()), "start attention");
  }
  void operator()(const ProvidedLaunch& launch) const { launch.attend->start(stream, launch.scratch); }
  void operator()(const kernels::MergeArgs& args) const {
    driver.check(kernels::cuda::merge(args, stream.handle()), "start merging");
  }
  void operator()(const kernels::AccumulateArgs& args) const {
    driver.check(kernels::cuda::accumulate(args, stream.handle()), "start accumulating");
  }
  void operator()(const kernels::ConvertArgs& args) const {
    driver.check(kernels::cuda::convert(args, stream.handle()), "start converting");
  }
  void operator()(const kernels::FillArgs& args) const { start_filling(args, driver, stream); }
};

/// Loads a launch's kernel by a launch of nothing. Else CUDA does when it is first started, and may wait then for all
/// kernels that run: also for an exchange with a rank that waits for this one.
struct Loader {
  const Driver& driver;
  const Stream& stream;

  void operator()(const TileLaunch& launch) const {
    driver.check(launch.kernel->launch(launch.params, 0, stream.handle()), "load attention");
  }
  void operator()(const ProvidedLaunch&) const {}  // its provider has
  void operator()(kernels::MergeArgs args) const {
    args.rows = 0;
    driver.check(kernels::cuda::merge(args, stream.handle()), "load merging");
  }
  void operator()(kernels::AccumulateArgs args) const {
    args.count = 0;
    driver.check(kernels::cuda::accumulate(args, stream.handle()), "load accumulating");
  }
  void operator()(kernels::ConvertArgs args) const {
    args.count = 0;
    driver.check(kernels::cuda::convert(args, stream.handle()), "load converting");
  }
  void operator()(const kernels::FillArgs&) const {
    driver.check(kernels::cuda::fill(nullptr, 0, 0, stream.handle()), "load filling");
  }
};

}  // namespace

void start_filling(const kernels::FillArgs& args, const Driver& driver, Stream& stream) {
  if (args.value == 0) {
    stream.clear(args.into, index(args.count) * size_of(args.dtype));
    return;
  }
  DISTATTN_EXPECT(args.dtype == DType::fp32);
  auto* const into = static_cast<float*>(args.into);
  driver.check(kernels::cuda::fill(into, args.count, static_cast<float>(args.value), stream.handle()), "start filling");
}

Coverage coverage_of(std::span<const Band> bands, const Run& queries, const Run& keys) {
  const bool full = std::any_of(bands.begin(), bands.end(),
                                [&](const Band& band) { return classify(band, queries, keys) == Coverage::full; });
  return full ? Coverage::full : Coverage::partial;
}

std::vector<AttendRequest> tile_passes(Pass pass, const TileWork& work, const KernelChoice& choice) {
  const auto request = [&](TilePass tile_pass) {
    return AttendRequest{tile_pass, work.shape, work.queries, work.coverage, choice.variant};
  };
  if (pass == Pass::forward) return {request(TilePass::forward)};
  const AttendRequest all = request(TilePass::gradients);
  if (choice.gradient_order == GradientOrder::any && find_attend_kernel(all, choice.capability) != nullptr) {
    return {all};
  }
  return {request(TilePass::query_gradient), request(TilePass::key_gradients)};
}

std::vector<const AttendKernel*> tile_kernels(Pass pass, const TileWork& work, const KernelChoice& choice) {
  std::vector<const AttendKernel*> kernels;
  for (const AttendRequest& request : tile_passes(pass, work, choice)) {
    kernels.push_back(find_attend_kernel(request, choice.capability));
    DISTATTN_EXPECT(kernels.back() != nullptr);
  }
  return kernels;
}

Launches::Launches(const Batches& batches, std::size_t steps, Driver& driver, Stream& stream, const LaunchFlags& flags,
                   AttendProvider* provider, const KernelChoice& choice, StepGraphs graphs)
    : driver_(driver), graphs_(steps) {
  stream.handle();  // makes the GPU current on this thread: its driver describes tensors for the copy engine
  Builder builder(steps_, provider, choice);
  for (std::size_t step = 0; step < steps; ++step) {
    builder.begin_step();
    for (const Batch& batch : batches.of(step)) {
      std::visit([&](const auto& operations) { builder.add(operations); }, batch);
    }
  }
  for (const std::vector<Launch>& launches : steps_) {
    for (const Launch& launch : launches) std::visit(Loader{driver, stream}, launch);
  }
  if (builder.scratch_bytes() > 0) {
    scratch_ = driver.allocate(builder.scratch_bytes(), MemorySpace::cuda);
    builder.place_scratch(scratch_.get());
  }
  lists_ = builder.lists();
  if (!lists_.empty()) {
    device_lists_ = driver.allocate(lists_.size(), MemorySpace::cuda);
    builder.place_lists(device_lists_.get(), flags);
  }
  if (graphs == StepGraphs::always) record_graphs();
  // Last: nothing may fail while it is under way.
  if (!lists_.empty()) stream.copy(device_lists_.get(), lists_.data(), lists_.size());
}

void Launches::record_graphs() {
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    if (steps_[step].size() < 2) continue;
    graphs_[step] = driver_.record([&](Stream& recording) { start_each(step, recording); });
  }
}

void Launches::start(std::size_t step, Stream& stream) const {
  if (graphs_[step] != nullptr) return stream.start(*graphs_[step]);
  start_each(step, stream);
}

void Launches::start_each(std::size_t step, Stream& stream) const {
  for (const Launch& launch : steps_[step]) std::visit(Starter{driver_, stream}, launch);
}

}  // namespace distattn::backends::cuda
