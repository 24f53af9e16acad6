#pragma once
/// One running block: what the emulated primitives are made of.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "simt/async_units.hpp"
#include "simt/error.hpp"
#include "simt/global_memory.hpp"
#include "simt/race_detector.hpp"
#include "simt/random.hpp"
#include "simt/scheduler.hpp"
#include "simt/thread.hpp"

namespace simt {

/// 32-bit shared address of the first byte: not 0, so that a forgotten base shows.
inline constexpr std::uint32_t shared_base = 1024;
inline constexpr std::uint32_t all_lanes = 0xffffffffu;
inline constexpr unsigned named_barriers = 16;

struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  std::uint64_t seed = 0;
};

/// The launch that runs and its current block: one at a time in a process. Errors name block and thread.
class Machine {
 public:
  Machine() : scheduler_(random_) {}

  /// Runs every block of the grid, one after the other in an order of the seed's choice.
  void run(const Launch& launch, const std::function<void()>& kernel);

  const Launch& launch() const { return launch_; }
  dim3 block_index() const { return block_index_; }
  Thread& thread() { return scheduler_.current(); }

  /// All lanes of `mask` meet. The last to come runs `act(void* arguments[32])` for all of them.
  template <class Act>
  void collective(const char* name, std::uint32_t mask, void* argument, Act act);
  /// Orders what the lanes of `mask` do; called inside a collective.
  void order_lanes(std::uint32_t mask);

  /// bar.sync (wait) or bar.arrive of `count` threads.
  void barrier(unsigned id, unsigned count, bool wait);
  /// __syncthreads_or.
  bool any_thread(bool value);

  /// Memory behind a shared address, after checking bounds and alignment.
  std::byte* shared(std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment, const char* what) {
    if (address < shared_base || address - shared_base + bytes > launch_.shared_bytes || address % alignment != 0)
      fail_shared(address, bytes, what);
    return shared_ + (address - shared_base);
  }
  void on_shared_read(std::uint32_t address, std::uint32_t bytes, const char* what);
  void on_shared_write(std::uint32_t address, std::uint32_t bytes, const char* what);
  std::byte* shared_memory() { return shared_; }
  void count_bank_conflicts(unsigned conflicts) { bank_conflicts_ += conflicts; }
  /// Extra shared memory cycles that ldmatrix and stmatrix have cost in the last launch.
  std::uint64_t bank_conflicts() const { return bank_conflicts_; }

  void on_global(const void* address, std::size_t bytes, Access access, const char* what);

  /// cp.async of `bytes` from global memory, or of zeros.
  void start_copy(std::uint32_t address, const void* from, std::uint32_t bytes, bool zeros);
  void commit_copies() { ++thread().committed_groups; }
  /// Returns when all but the newest `groups` groups of this thread have landed.
  void wait_for_copies(unsigned groups);

  /// What runs beside the threads of the current block.
  AsyncUnits& async() { return *async_; }

  [[noreturn]] void fail(const std::string& problem);
  /// Runs `check`; an Error of its gets the place.
  template <class Check>
  void checked(Check check);

 private:
  struct Meeting {
    std::uint32_t mask = 0, arrived = 0;
    const char* name = nullptr;
    void* arguments[warp_size];
  };
  struct Barrier {
    unsigned expected = 0, arrived = 0;
    std::vector<Thread*> waiting;
    Clock seen;
  };
  [[noreturn]] void fail_shared(std::uint32_t address, std::uint32_t bytes, const char* what);
  void run_block(const std::function<void()>& kernel);
  bool join(const char* name, std::uint32_t mask, void* argument);
  void finish_collective(std::uint32_t mask);
  Meeting& meeting_of(std::uint32_t mask);
  static void land(Copy& copy);
  void perhaps_land();

  Launch launch_;
  dim3 block_index_;
  Random random_;
  Scheduler scheduler_;
  std::unique_ptr<RaceDetector> races_;
  std::unique_ptr<AsyncUnits> async_;
  std::byte* shared_ = nullptr;
  std::vector<Meeting> meetings_;  // [warp][lowest lane of the mask]
  Barrier barriers_[named_barriers];
  Landing landing_ = Landing::random;
  std::vector<char> votes_;  // of any_thread, by how many the thread has cast before
  std::uint64_t bank_conflicts_ = 0;
  std::uint32_t launches_ = 0;
};

/// Inlined: every access of a kernel begins with it.
inline Machine& machine() {
  static Machine machine;
  return machine;
}

/// Held while a kernel runs.
std::mutex& machine_mutex();

/// kernel<<<grid, block, shared_bytes>>>(arguments…), to its end.
template <class Kernel, class... Arguments>
void launch(Kernel kernel, const Launch& shape, const Arguments&... arguments) {
  const std::scoped_lock lock(machine_mutex());
  machine().run(shape, [&] { kernel(arguments...); });
}

template <class Check>
void Machine::checked(Check check) {
  try {
    check();
  } catch (const Error& error) {
    fail(error.what());
  }
}

template <class Act>
void Machine::collective(const char* name, std::uint32_t mask, void* argument, Act act) {
  if (!join(name, mask, argument)) return;
  act(meeting_of(mask).arguments);
  finish_collective(mask);
}

}  // namespace simt
