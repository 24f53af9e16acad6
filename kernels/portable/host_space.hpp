#pragma once
/// The portable kernels on one of Kokkos's host spaces: teams of one thread, each with scratch memory of its own, take
/// blocks until none is left.

#ifdef __CUDACC__
#pragma nv_diag_suppress 20011, 20014  // blocks that devices compute too call teams of hosts here, which no device does
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <string>
#include <system_error>
#include <type_traits>

#include "distattn/error.hpp"
#include "kernels/element.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/portable/attend.hpp"
#include "kernels/portable/instance.hpp"
#include "kernels/portable/plan.hpp"
#include "kernels/portable/query_gradients.hpp"
#include "kernels/portable/spaces.hpp"
#include "kernels/raise.hpp"

namespace distattn::kernels::portable {

/// A team of one thread of a host.
template <class Real>
class LoneThread {
 public:
  LoneThread(const TileFunctions<Real>& tiles, const StopFlag& stop) : tiles_(tiles), stop_(stop) {}

  const TileFunctions<Real>& tiles() const { return tiles_; }
  static constexpr Place place() { return {}; }
  static void wait() {}
  static bool all(bool own) { return own; }
  bool is_stopped() const { return stop_.load(std::memory_order_relaxed); }
  static void raise(Real& largest, Real value) { kernels::raise(largest, value); }

 private:
  const TileFunctions<Real>& tiles_;
  const StopFlag& stop_;
};

template <class Real>
const TileFunctions<Real>& functions_for() {
  if constexpr (std::is_same_v<Real, double>) {
    return tile_functions().of_doubles;
  } else {
    return tile_functions().of_floats;
  }
}

/// What is left of a list.
struct ItemsLeft {
  using List = Kokkos::View<const Item*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

  List items;
  const StopFlag& stop;
  std::atomic<std::size_t> next{0};

  /// Calls body(item, scratch) for one item after the other until none is left. `memory` has `bytes` and the room to
  /// begin on a line.
  template <class Body>
  void take_all(void* memory, const Body& body) {
    const std::uintptr_t beyond = reinterpret_cast<std::uintptr_t>(memory) % line;
    std::byte* const scratch = static_cast<std::byte*>(memory) + (beyond == 0 ? 0 : line - beyond);
    for (std::size_t i; !stop.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < items.extent(0);) {
      body(items(i), scratch);
    }
  }

  static constexpr std::size_t line = 64;
};

/// On `threads` threads of an instance, as teams of one thread.
template <class Space, class Body>
void run_teams(const Space& space, int threads, std::size_t bytes, ItemsLeft& left, const Body& body) {
  constexpr int level = 1;  // of scratch memory: that of any size
  const std::size_t bytes_there = bytes + ItemsLeft::line;
  using Policy = Kokkos::TeamPolicy<Space>;
  Policy policy(space, threads, 1);
  policy.set_scratch_size(level, Kokkos::PerTeam(static_cast<int>(bytes_there)));
  Kokkos::parallel_for("distattn", policy, [&](const typename Policy::member_type& member) {
    begin_on_thread<Space>();
    left.take_all(member.team_scratch(level).get_shmem(bytes_there), body);
  });
  space.fence("distattn");  // whose own name would be allocated
}

/// On the threads of a team, each of which is one of Kokkos's Serial.
template <class Space, class Body>
void run_serially(Team& team, std::size_t bytes, ItemsLeft& left, const Body& body) {
  team.run([&](int thread) {
    if constexpr (has_instances<Space>) {
      const Instance<Space> instance(1);
      run_teams(instance.space(), 1, bytes, left, body);
    } else {
      // All threads would share the scratch memory of Serial's one team.
      std::byte* const memory = team.scratch(thread, bytes + ItemsLeft::line);
      Kokkos::parallel_for("distattn", Kokkos::RangePolicy<Space>(0, 1), [&](int) { left.take_all(memory, body); });
    }
  });
}

/// Throws Error(environment) where there are more than `most`.
inline void expect_threads(int threads, int most, const char* why) {
  if (threads <= most) return;
  throw Error(ErrorKind::environment, std::to_string(threads) + " threads are asked for where Kokkos has " +
                                          std::to_string(most) + " (" + why + "): ask for fewer");
}

/// On a thread of its own.
template <class Call>
void call_elsewhere(const Call& call) {
  std::future<void> done;
  try {
    done = std::async(std::launch::async, call);
  } catch (const std::system_error& refused) {
    throw no_threads(refused);
  }
  done.get();
}

/// Calls body(item, scratch) for every item, on as many threads of a space as the team has. Ranks of this process do so
/// at once, in instances of their own, if the space has those, else in turns.
template <class Space, class Body>
void run_items(Team& team, std::span<const Item> items, std::size_t bytes, const StopFlag& stop, const Body& body) {
  if (items.empty()) return;
  need_kokkos(team.size());
  ItemsLeft left{ItemsLeft::List(items.data(), items.size()), stop};
  if constexpr (is_serial<Space>) {
    run_serially<Space>(team, bytes, left, body);
  } else if constexpr (has_instances<Space>) {
    expect_threads(team.size(), most_threads<Space>, "as many as its OpenMP has room for");
    const auto call = [&] {
      const Instance<Space> instance(team.size());
      run_teams(instance.space(), team.size(), bytes, left, body);
    };
    is_unfit<Space>() ? call_elsewhere(call) : call();
  } else {
    static_assert(takes_one_thread<Space>);
    const auto call = [&] {
      const Space space;
      expect_threads(team.size(), space.concurrency(), "it was initialised with them");
      run_teams(space, team.size(), bytes, left, body);
    };
    on_kokkos_thread([](void* erased) { (*static_cast<const decltype(call)*>(erased))(); },
                     const_cast<void*>(static_cast<const void*>(&call)));
  }
}

/// Calls call(Real{}) with the type in which sums of these operations are kept, which is one in a list.
template <class Args, class Call>
void with_sums(std::span<const Args> operations, Call call) {
  if (operations.empty()) return;
  with_accumulator(accumulator_of(operations.front().shape.dtype), call);
}

template <class Space>
void attend_on(std::span<const AttendArgs> operations, Team& team, const StopFlag& stop) {
  thread_local RowPlan kept;
  RowPlan& plan = kept;
  plan.make(operations);
  with_sums(operations, [&]<class Real>(Real) {
    const LoneThread<Real> lone(functions_for<Real>(), stop);
    std::size_t bytes = 0;
    for (const TileSizes& sizes : plan.sizes) bytes = std::max(bytes, AttendScratch<Real>(nullptr, sizes).bytes);
    run_items<Space>(team, plan.items, bytes, stop, [&](const Item& item, std::byte* memory) {
      const auto at = static_cast<std::size_t>(item.owner);
      AttendBlock<Real, LoneThread<Real>>(lone, operations[at], item, plan.sizes[at], memory).run();
    });
  });
}

template <class Space>
void attend_backward_on(std::span<const AttendBackwardArgs> operations, Team& team, const StopFlag& stop) {
  thread_local RowPlan kept_rows;
  thread_local KeyPlan kept_keys;
  for (const AttendBackwardArgs& args : operations) clear_sums(args);
  RowPlan& rows = kept_rows;
  KeyPlan& keys = kept_keys;
  rows.make(operations);
  keys.make(operations);
  with_sums(operations, [&]<class Real>(Real) {
    const LoneThread<Real> lone(functions_for<Real>(), stop);
    std::size_t bytes = 0;
    for (const TileSizes& sizes : rows.sizes) {
      bytes = std::max(bytes, QueryGradientScratch<Real>(nullptr, sizes).bytes);
    }
    for (const KeyPlan::Column& column : keys.columns) {
      bytes = std::max(bytes, KeyGradientScratch<Real>(nullptr, column.sizes).bytes);
    }
    run_items<Space>(team, keys.items, bytes, stop, [&](const Item& item, std::byte* memory) {
      const KeyPlan::Column& column = keys.columns[static_cast<std::size_t>(item.owner)];
      KeyGradientBlock<Real, LoneThread<Real>>(lone, item, column.sizes, memory)
          .run(operations, std::span<const Contribution>(keys.contributions).subspan(column.first, column.count));
    });
    run_items<Space>(team, rows.items, bytes, stop, [&](const Item& item, std::byte* memory) {
      const auto at = static_cast<std::size_t>(item.owner);
      QueryGradientBlock<Real, LoneThread<Real>>(lone, operations[at], item, rows.sizes[at], memory).run();
    });
  });
}

/// The table of a space, whose other kernels are the reference's: they only move memory.
template <class Space>
HostKernels kernels_on(const char* name) {
  HostKernels kernels = reference_kernels();
  kernels.name = name;
  kernels.features = portable_features;
  kernels.query_block = [] { return 64; };
  kernels.attend = attend_on<Space>;
  kernels.attend_backward = attend_backward_on<Space>;
  return kernels;
}

}  // namespace distattn::kernels::portable
