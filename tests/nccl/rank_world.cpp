#include "nccl/rank_world.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backends/nccl/split_transport.hpp"
#include "backends/nccl/transport.hpp"
#include "distattn/inproc.hpp"
#include "launch/threads_meet.hpp"
#include "tests/support/one_memory.hpp"

namespace distattn::test {
namespace {

thread_local simt::EmulatedDriver* gpu = nullptr;

/// The control channel of ranks that are threads: the first failure ends all.
class Failures {
 public:
  explicit Failures(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  void abort(const Error& error) {
    {
      const std::scoped_lock lock(mutex_);
      if (first_) return;
      first_ = error;
    }
    for (PerRank& rank : ranks_) {
      const std::scoped_lock lock(rank.mutex);
      if (rank.listener) rank.listener(error);
    }
  }
  void listen(Rank rank, std::function<void(const Error&)> listener) {
    PerRank& entry = ranks_[static_cast<std::size_t>(rank)];
    const std::scoped_lock lock(entry.mutex);
    entry.listener = std::move(listener);
    if (entry.listener && first()) entry.listener(*first());
  }
  std::optional<Error> first() const {
    const std::scoped_lock lock(mutex_);
    return first_;
  }

 private:
  struct PerRank {
    std::recursive_mutex mutex;  // a listener may abort
    std::function<void(const Error&)> listener;
  };

  mutable std::mutex mutex_;
  std::optional<Error> first_;
  std::vector<PerRank> ranks_;
};

class RankControl final : public Control {
 public:
  RankControl(Failures& failures, Rank rank, std::optional<Rank> missing)
      : failures_(failures), rank_(rank), missing_(missing) {}

  void computing(int) noexcept override {}
  void resting() noexcept override {}
  void awaiting(Lane, Rank) noexcept override {}
  void arrived(Lane) noexcept override {}
  void check(Rank peer, Clock::time_point) override {
    if (const auto first = failures_.first()) throw *first;
    if (peer != missing_) return;
    const Error error(ErrorKind::timeout, "rank " + std::to_string(peer) + " made no progress");
    failures_.abort(error);
    throw error;
  }
  void abort(const Error& error) noexcept override { failures_.abort(error); }
  void on_failure(std::function<void(const Error&)> listener) override { failures_.listen(rank_, std::move(listener)); }

 private:
  Failures& failures_;
  const Rank rank_;
  const std::optional<Rank> missing_;
};

/// Threads that meet as processes do.
class ControlledBootstrap final : public Bootstrap {
 public:
  ControlledBootstrap(Bootstrap& meeting, Control& control) : meeting_(meeting), control_(control) {}

  std::string_view name() const override { return "threads"; }
  Rank rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }
  Rank local_rank() const override { return meeting_.local_rank(); }
  int local_size() const override { return meeting_.local_size(); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return meeting_.all_gather(mine);
  }
  void barrier() override { meeting_.barrier(); }
  Control* control() override { return &control_; }

 private:
  Bootstrap& meeting_;
  Control& control_;
};

}  // namespace

const backends::nccl::Library& standin() { return backends::nccl::load_library(DISTATTN_NCCL_STANDIN); }

simt::EmulatedDriver& own_gpu() { return *gpu; }

void run_nccl_ranks(int ranks, const RankBody& body, const NcclWorld& world) {
  backends::nccl::Library library = standin();
  library.keeps_order = library.keeps_order && world.keeps_order;
  Failures failures(ranks);
  Port port(ranks, world.timeout_s.value_or(patience_s));
  std::vector<std::unique_ptr<simt::EmulatedDriver>> gpus;
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (rank == 0 || !world.one_gpu) gpus.push_back(std::make_unique<simt::EmulatedDriver>(world.seed + rank * 1000u));
  }
  run_ranks(ranks, [&](Rank rank, Transport& inproc, Bootstrap& meeting) {
    gpu = gpus[world.one_gpu ? 0 : static_cast<std::size_t>(rank)].get();
    RankControl control(failures, rank, world.missing);
    ControlledBootstrap as_told(meeting, control);
    const auto as_processes = world.timeout_s ? port.meet(rank) : nullptr;
    Bootstrap& bootstrap = as_processes ? *as_processes : as_told;
    try {
      if (world.far) {
        auto far = std::make_unique<OneMemory>(inproc, *world.far);
        auto near =
            std::make_unique<backends::nccl::NcclTransport>(library, *gpu, bootstrap, backends::nccl::Lanes::near);
        backends::nccl::SplitTransport transport(*gpu, std::move(near), std::move(far));
        body(rank, transport);
      } else {
        backends::nccl::NcclTransport transport(library, *gpu, bootstrap);
        body(rank, transport);
      }
      bootstrap.barrier();
    } catch (...) {
      bootstrap.control()->abort(as_error(std::current_exception()));
      throw;
    }
  });
}

}  // namespace distattn::test
