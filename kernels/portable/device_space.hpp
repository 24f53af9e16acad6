#pragma once
/// The portable kernels on a space of Kokkos that has memory of its own: a team of threads takes a block, with scratch
/// memory and barriers of Kokkos. It compiles for spaces of hosts too, whose memory then stands for a device's.

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "distattn/error.hpp"
#include "kernels/portable/attend.hpp"
#include "kernels/portable/device.hpp"
#include "kernels/portable/elements_on_device.hpp"
#include "kernels/portable/instance.hpp"
#include "kernels/portable/query_gradients.hpp"
#include "kernels/portable/thread_tiles.hpp"

namespace distattn::kernels::portable {

/// What a space is as a device: where it is compiled, this is specialised.
///   static std::string why_not();    empty, or why it cannot be used here
///   static int count();              of devices of this machine that a process may choose from
///   using Pinned                     memory of the host that it reaches
///   static constexpr MemorySpace space
///   static constexpr int team        threads of a team; 0: the caller says how many
template <class Space>
struct DeviceTraits;

/// *stop, which the host may set at any time.
DISTATTN_HOST_DEVICE inline int look_at(const int* stop) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__) || defined(__SYCL_DEVICE_ONLY__)
  return *static_cast<const volatile int*>(stop);
#else
  return __atomic_load_n(stop, __ATOMIC_RELAXED);
#endif
}

/// A team of Kokkos's threads, as the blocks of both passes ask for it.
template <class Real, class Member>
class KokkosTeam {
 public:
  DISTATTN_HOST_DEVICE KokkosTeam(const Member& member, const int* stop) : member_(member), stop_(stop) {}

  DISTATTN_HOST_DEVICE ThreadTiles<Real> tiles() const { return {}; }
  DISTATTN_HOST_DEVICE Place place() const { return {member_.team_rank(), member_.team_size()}; }
  DISTATTN_HOST_DEVICE void wait() const { member_.team_barrier(); }
  DISTATTN_HOST_DEVICE bool all(bool own) const {
    int least = own ? 1 : 0;
    member_.team_reduce(Kokkos::Min<int>(least));
    return least != 0;
  }
  /// The same for all of its threads, which else would wait for each other for ever.
  DISTATTN_HOST_DEVICE bool is_stopped() const {
    int seen = member_.team_rank() == 0 ? look_at(stop_) : 0;
    member_.team_broadcast(seen, 0);
    return seen != 0;
  }
  DISTATTN_HOST_DEVICE void raise(Real& largest, Real value) const {
    Real before = *static_cast<const volatile Real*>(&largest);
    while (!(before >= value) && before == before) {
      const Real found = Kokkos::atomic_compare_exchange(&largest, before, value);
      if (found == before) return;
      before = found;
    }
  }

 private:
  const Member& member_;
  const int* stop_;
};

/// What every launch of blocks has: the scratch memory of its teams.
struct TeamScratch {
  static constexpr std::size_t line = 64;  // on which it begins
  std::size_t bytes = 0;
  int level = 0;

  template <class Member>
  DISTATTN_HOST_DEVICE std::byte* of(const Member& member) const {
    return static_cast<std::byte*>(member.team_scratch(level).get_shmem_aligned(bytes, line));
  }
};

/// A team for each block of queries.
template <class Real, class Space, class Args, template <class, class> class Block>
struct RowTeams {
  using Member = typename Kokkos::TeamPolicy<Space>::member_type;
  RowList<Args> list;
  const int* stop;
  TeamScratch scratch;

  DISTATTN_HOST_DEVICE void operator()(const Member& member) const {
    const Item& item = list.items[member.league_rank()];
    const KokkosTeam<Real, Member> team(member, stop);
    Block<Real, KokkosTeam<Real, Member>>(team, list.operations[item.owner], item, list.sizes[item.owner],
                                          scratch.of(member))
        .run();
  }
};
template <class Real, class Space>
using AttendTeams = RowTeams<Real, Space, AttendArgs, AttendBlock>;
template <class Real, class Space>
using QueryGradientTeams = RowTeams<Real, Space, AttendBackwardArgs, QueryGradientBlock>;

/// A team for each block of keys.
template <class Real, class Space>
struct KeyGradientTeams {
  using Member = typename Kokkos::TeamPolicy<Space>::member_type;
  ColumnList list;
  const int* stop;
  TeamScratch scratch;

  DISTATTN_HOST_DEVICE void operator()(const Member& member) const {
    const Item& item = list.items[member.league_rank()];
    const KeyPlan::Column& column = list.columns[item.owner];
    const KokkosTeam<Real, Member> team(member, stop);
    KeyGradientBlock<Real, KokkosTeam<Real, Member>>(team, item, column.sizes, scratch.of(member))
        .run(list.operations, {list.contributions + column.first, column.count});
  }
};

/// Calls `call`, and throws what Kokkos throws in words of this library. Kokkos itself would end the process where it
/// was finalized before.
template <class Call>
decltype(auto) with_kokkos(const std::string& name, Call call) {
  const std::string why = why_no_kokkos();
  if (!why.empty()) throw Error(ErrorKind::environment, why);
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error(ErrorKind::environment,
                name + " failed (" + text.substr(0, text.find('\n')) + "): take another backend");
  }
}

/// One launch at a time where Kokkos does not tell launches of several threads apart.
template <class Space>
std::unique_lock<std::mutex> turn_of() {
  static std::mutex mutex;
  return has_instances<Space> ? std::unique_lock<std::mutex>() : std::unique_lock(mutex);
}

template <class Space>
class Queue final : public SpaceQueue {
 public:
  Queue(const std::string& name, int threads, const int* stop)
      : name_(name), threads_(DeviceTraits<Space>::team > 0 ? DeviceTraits<Space>::team : threads), stop_(stop) {
    if constexpr (has_instances<Space>) instance_.emplace(threads_);
  }

  void start(const SpaceLaunch& launch) override {
    with_kokkos(name_, [&] {
      const auto turn = turn_of<Space>();
      std::visit([this](const auto& each) { this->run(each); }, launch);
    });
  }
  void copy(void* into, const void* from, std::size_t bytes, Way way) override {
    if (bytes == 0) return;
    using Host = Kokkos::HostSpace;
    using Own = typename Space::memory_space;
    with_kokkos(name_, [&] {
      const auto turn = turn_of<Space>();
      if (way == Way::in) copy_between<Own, Host>(into, from, bytes);
      if (way == Way::out) copy_between<Host, Own>(into, from, bytes);
      if (way == Way::within) copy_between<Own, Own>(into, from, bytes);
    });
  }
  void clear(void* into, std::size_t bytes) override {
    DISTATTN_EXPECT(bytes % 2 == 0);
    start(FillArgs{DType::bf16, into, static_cast<std::int64_t>(bytes / 2), 0});
  }
  void fence() override {
    with_kokkos(name_, [&] {
      const auto turn = turn_of<Space>();
      space().fence();
    });
  }

 private:
  using Policy = Kokkos::TeamPolicy<Space>;

  Space space() const {
    if constexpr (has_instances<Space>) {
      return instance_->space();
    } else {
      return {};
    }
  }

  template <class Into, class From>
  void copy_between(void* into, const void* from, std::size_t bytes) const {
    using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    const Kokkos::View<unsigned char*, Into, Unmanaged> to(static_cast<unsigned char*>(into), bytes);
    const Kokkos::View<const unsigned char*, From, Unmanaged> of(static_cast<const unsigned char*>(from), bytes);
    Kokkos::deep_copy(space(), to, of);
  }

  template <template <class, class> class Teams, class List>
  void run_teams(const List& list) const {
    if (list.count == 0) return;
    DISTATTN_EXPECT(list.count <= std::numeric_limits<int>::max());
    TeamScratch scratch{list.scratch_bytes, 0};
    const std::size_t bytes = scratch.bytes + TeamScratch::line;
    scratch.level = bytes <= static_cast<std::size_t>(Policy::scratch_size_max(0)) ? 0 : 1;
    const auto start_with = [&]<class Real>(Real) {
      const Teams<Real, Space> teams{list, stop_, scratch};
      Policy policy(space(), static_cast<int>(list.count), 1);
      policy.set_scratch_size(scratch.level, Kokkos::PerTeam(static_cast<int>(bytes)));
      const int most = policy.team_size_max(teams, Kokkos::ParallelForTag());
      Policy of_teams(space(), static_cast<int>(list.count), std::min(threads_, most));
      of_teams.set_scratch_size(scratch.level, Kokkos::PerTeam(static_cast<int>(bytes)));
      Kokkos::parallel_for("distattn", of_teams, teams);
    };
    list.sums == DType::fp64 ? start_with(double{}) : start_with(float{});
  }
  void run(const RowList<AttendArgs>& list) const { run_teams<AttendTeams>(list); }
  void run(const RowList<AttendBackwardArgs>& list) const { run_teams<QueryGradientTeams>(list); }
  void run(const ColumnList& list) const { run_teams<KeyGradientTeams>(list); }

  /// Element by element or row by row, each for a thread.
  template <class Args>
  void run(const Args& args) const {
    visit_elements(args, [&](std::int64_t count, const auto& functor) {
      if (count == 0) return;
      Kokkos::parallel_for("distattn", Kokkos::RangePolicy<Space, std::int64_t>(space(), 0, count), functor);
    });
  }

  const std::string name_;
  const int threads_;
  const int* const stop_;
  std::optional<Instance<Space>> instance_;
};

template <class Space>
class DeviceOn final : public SpaceDevice {
 public:
  explicit DeviceOn(std::string name) : name_(std::move(name)) {}

  std::string name() const override { return name_; }
  MemorySpace space() const override { return Traits::space; }
  std::string why_not() const override {
    const std::string why = why_no_kokkos();
    return why.empty() ? Traits::why_not() : why;
  }
  void begin(int local_rank, int threads) override {
    const std::string why = why_not();
    if (!why.empty()) throw Error(ErrorKind::environment, why);
    const int count = Traits::count();
    with_kokkos(name_, [&] { need_kokkos(threads, count > 0 ? local_rank % count : no_device); });
  }
  std::shared_ptr<std::byte> allocate(std::size_t bytes, bool on_host) override {
    return on_host ? allocate_in<typename Traits::Pinned>(bytes) : allocate_in<typename Space::memory_space>(bytes);
  }
  std::unique_ptr<SpaceQueue> make_queue(int threads, const int* stop) override {
    return with_kokkos(name_, [&] { return std::make_unique<Queue<Space>>(name_, threads, stop); });
  }
  std::size_t fast_bytes() const override {
    const auto most = static_cast<std::size_t>(Kokkos::TeamPolicy<Space>::scratch_size_max(0));
    return most - std::min(most, TeamScratch::line);
  }

 private:
  using Traits = DeviceTraits<Space>;

  /// Memory that Kokkos took along when it was finalized is not let go again.
  template <class Memory>
  std::shared_ptr<std::byte> allocate_in(std::size_t bytes) const {
    constexpr std::size_t alignment = 256;
    void* const memory = with_kokkos(name_, [&] {
      const auto turn = turn_of<Space>();
      return Kokkos::kokkos_malloc<Memory>("distattn", bytes + alignment);
    });
    if (memory == nullptr) {
      throw Error(ErrorKind::environment, name_ + " has no " + std::to_string(bytes) +
                                              " bytes of memory left (allocation failed): use more ranks");
    }
    const std::shared_ptr<void> whole(memory, [](void* own) {
      if (why_no_kokkos().empty()) Kokkos::kokkos_free<Memory>(own);
    });
    const auto beyond = reinterpret_cast<std::uintptr_t>(memory) % alignment;
    return {whole, static_cast<std::byte*>(memory) + (alignment - beyond) % alignment};
  }

  const std::string name_;
};

}  // namespace distattn::kernels::portable
