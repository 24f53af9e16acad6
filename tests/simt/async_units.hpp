#pragma once
/// What a Hopper block has beside its threads: barriers that count arrivals and bytes, bulk copies, and products of
/// warpgroups. Everything takes effect at a moment of the seed's choice that the program allows.

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "simt/race_detector.hpp"
#include "simt/random.hpp"
#include "simt/scheduler.hpp"

namespace simt {

/// When an asynchronous operation takes effect: at once, as late as it may, or somewhere between.
enum class Landing { eager, lazy, random };

struct SharedRange {
  std::uint32_t address = 0, bytes = 0;  ///< from the start of shared memory
};

/// Addresses of barriers are those of their 8 bytes, from the start of shared memory.
class AsyncUnits {
 public:
  AsyncUnits(Scheduler& scheduler, RaceDetector& races, Random& random, Landing landing)
      : scheduler_(scheduler), races_(races), random_(random), landing_(landing) {}

  void init_barrier(std::uint32_t barrier, unsigned arrivals);
  /// Copies may land under the barriers that the current thread has initialised.
  void publish_barriers();
  void arrive(std::uint32_t barrier, std::uint32_t expected_bytes);
  /// Returns once the phase of that parity has been completed.
  void wait_for_phase(std::uint32_t barrier, unsigned parity);

  /// `land` writes `into`, then `into.bytes` bytes have arrived at the barrier.
  void start_load(std::uint32_t barrier, SharedRange into, std::function<void()> land);

  /// One warp's share of a product, which reads `reads` and takes effect in order. Called inside a collective.
  void start_product(std::vector<SharedRange> reads, std::function<void()> land);
  void fence_products() { warp().fenced = true; }
  void commit_products() { ++warp().committed; }
  /// Returns when all but the newest `groups` groups of this warp have taken effect.
  void wait_for_products(unsigned groups);

  /// `land` reads `from`, for the current thread.
  void start_store(SharedRange from, std::function<void()> land);
  void commit_stores() { ++stores_of(scheduler_.current()).committed; }
  void wait_for_stores(unsigned groups);
  void fence_proxy() { races_.fence_proxy(scheduler_.current()); }

  /// The current warp has `registers` a thread from here on: more, when others have given as many back, or fewer.
  void set_registers(unsigned registers, bool more);

  void perhaps_land();
  /// Lets a load land that is on its way; false if there is none.
  bool land_a_load();
  /// Throws Error if something has not been waited for when the threads have ended.
  void check_ended() const;

 private:
  struct PhaseBarrier {
    unsigned expected = 0, pending = 0;
    std::int64_t bytes = 0;  // announced and not arrived
    unsigned phase = 0;
    unsigned initialiser = 0;  // rank
    bool published = false;
    unsigned writer = 0;      // of what lands under it
    std::uint32_t epoch = 1;  // of that writer
    Clock arriving, completed;
    std::vector<Thread*> waiting;
  };
  struct Load {
    std::uint32_t barrier;
    SharedRange into;
    std::function<void()> land;
  };
  struct Operation {
    std::vector<SharedRange> reads;
    std::function<void()> land;
    std::uint64_t group;
    bool landed = false;
  };
  /// Operations in order, in groups.
  struct Queue {
    std::deque<Operation> operations;
    std::uint64_t committed = 0;
    bool fenced = false;
  };

  PhaseBarrier& barrier_at(std::uint32_t address, const char* what);
  void complete_if_done(PhaseBarrier& barrier);
  void land(Load load);
  void start(Queue& queue, std::vector<SharedRange> reads, std::function<void()> land, const char* what);
  void wait(Queue& queue, unsigned groups);
  static void land_next(Queue& queue);
  Queue& warp() { return products_[scheduler_.current().warp]; }
  Queue& stores_of(const Thread& thread) { return stores_[thread.rank]; }

  Scheduler& scheduler_;
  RaceDetector& races_;
  Random& random_;
  Landing landing_;
  std::map<std::uint32_t, PhaseBarrier> barriers_;
  std::vector<Load> loads_;
  std::map<unsigned, Queue> products_;  // of each warp
  std::map<unsigned, Queue> stores_;    // of each thread
  std::vector<unsigned> registers_;     // of a thread of each warp; empty while all have what they were launched with
  unsigned free_registers_ = 0;         // of as many threads as a warp has
  std::vector<Thread*> waiting_for_registers_;
};

}  // namespace simt
