#pragma once
/// Which thread of a block runs next, drawn from the launch's seed.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simt/random.hpp"
#include "simt/thread.hpp"

namespace simt {

/// Threads run one at a time, each until it sleeps. Warps drift apart: mostly the warp of highest priority runs, and
/// priorities change rarely, so that one warp can get as far ahead of another as barriers allow.
class Scheduler {
 public:
  explicit Scheduler(Random& random) : random_(random) {}

  /// Runs `body` in every thread of a block of that shape; rethrows what one of them throws, the others are dropped.
  /// When all that are left sleep, `on_idle` may wake one and return true; Error if it does not.
  void run(dim3 shape, const std::function<void()>& body, const std::function<bool()>& on_idle);

  Thread& current() { return *current_; }
  Thread& thread(unsigned rank) { return *threads_[rank]; }
  unsigned count() const { return count_; }
  unsigned warps() const { return static_cast<unsigned>(warps_.size()); }

  /// The current thread runs no further until somebody wakes it.
  void sleep(const char* waits_for);
  void wake(const Thread& thread);
  /// A place where the current warp may lose its turn to another.
  void perhaps_yield();
  /// Draws a new priority for the current warp, one time in two.
  void reshuffle();

 private:
  struct Warp {
    std::uint32_t runnable = 0;  // lanes
    std::uint64_t priority = 0;
  };

  static void thread_main(void* self);
  void prepare(dim3 shape);
  Warp* choose_warp();
  std::string who_waits_for_what() const;

  Random& random_;
  std::vector<std::unique_ptr<Thread>> threads_;  // kept from block to block for their stacks
  std::vector<Warp> warps_;
  unsigned count_ = 0, alive_ = 0;
  std::uint32_t drift_ = 0;  // chance in 1024 that perhaps_yield() yields
  bool uniform_ = false;     // every turn is drawn among all warps, whatever their priorities
  Thread* current_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::exception_ptr failure_;
};

}  // namespace simt
