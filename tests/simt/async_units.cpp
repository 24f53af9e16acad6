#include "simt/async_units.hpp"

#include <algorithm>
#include <string>

#include "simt/error.hpp"

namespace simt {
namespace {

constexpr std::uint32_t barrier_bytes = 8;
constexpr std::int64_t most_pending_bytes = (1 << 20) - 1;  // that a barrier counts
constexpr unsigned block_registers = 64 * 1024;

}  // namespace

void AsyncUnits::init_barrier(std::uint32_t barrier, unsigned arrivals) {
  if (arrivals == 0) throw Error("mbarrier.init: a barrier expects arrivals");
  if (max_warps + barriers_.size() == max_writers) throw Error("mbarrier.init: more barriers than are emulated");
  races_.on_write(scheduler_.current(), barrier, barrier_bytes, "mbarrier.init");
  PhaseBarrier made;
  made.expected = made.pending = arrivals;
  made.initialiser = scheduler_.current().rank;
  made.writer = max_warps + static_cast<unsigned>(barriers_.size());
  if (!barriers_.emplace(barrier, made).second) throw Error("mbarrier.init: the barrier exists");
}

void AsyncUnits::publish_barriers() {
  for (auto& [address, barrier] : barriers_) barrier.published |= barrier.initialiser == scheduler_.current().rank;
}

AsyncUnits::PhaseBarrier& AsyncUnits::barrier_at(std::uint32_t address, const char* what) {
  const auto found = barriers_.find(address);
  if (found == barriers_.end()) throw Error(std::string(what) + ": there is no barrier");
  races_.on_read(scheduler_.current(), address, barrier_bytes, what);
  return found->second;
}

void AsyncUnits::arrive(std::uint32_t address, std::uint32_t expected_bytes) {
  PhaseBarrier& barrier = barrier_at(address, "mbarrier.arrive");
  if (barrier.pending == 0) throw Error("mbarrier.arrive: more arrivals than the phase expects");
  barrier.bytes += expected_bytes;
  if (barrier.bytes > most_pending_bytes) throw Error("mbarrier.arrive: more bytes than a barrier counts");
  --barrier.pending;
  races_.release(scheduler_.current(), barrier.arriving);
  complete_if_done(barrier);
}

void AsyncUnits::complete_if_done(PhaseBarrier& barrier) {
  if (barrier.pending != 0) return;
  if (barrier.bytes < 0) throw Error("mbarrier: more bytes arrive than were announced");
  if (barrier.bytes > 0) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.expected;
  barrier.arriving.epoch[barrier.writer] = barrier.epoch++;
  barrier.completed.join(barrier.arriving);
  barrier.arriving = {};
  for (Thread* thread : barrier.waiting) scheduler_.wake(*thread);
  barrier.waiting.clear();
}

void AsyncUnits::wait_for_phase(std::uint32_t address, unsigned parity) {
  PhaseBarrier& barrier = barrier_at(address, "mbarrier.try_wait");
  while (barrier.phase == parity) {
    barrier.waiting.push_back(&scheduler_.current());
    scheduler_.sleep("an mbarrier");
  }
  scheduler_.current().seen.join(barrier.completed);
  perhaps_land();
}

void AsyncUnits::start_load(std::uint32_t barrier, SharedRange into, std::function<void()> land_it) {
  if (!barrier_at(barrier, "a bulk copy").published) throw Error("a bulk copy: its barrier has not been published");
  races_.on_copy(scheduler_.current(), into.address, into.bytes, "a bulk copy");
  loads_.push_back({barrier, into, std::move(land_it)});
  if (landing_ == Landing::eager) land_a_load();
}

bool AsyncUnits::land_a_load() {
  if (loads_.empty()) return false;
  std::swap(loads_[random_.below(static_cast<std::uint32_t>(loads_.size()))], loads_.back());
  Load load = std::move(loads_.back());
  loads_.pop_back();
  land(std::move(load));
  return true;
}

void AsyncUnits::land(Load load) {
  load.land();
  PhaseBarrier& barrier = barriers_.at(load.barrier);
  races_.on_landed(barrier.writer, barrier.epoch, load.into.address, load.into.bytes);
  barrier.bytes -= load.into.bytes;
  complete_if_done(barrier);
}

void AsyncUnits::start(Queue& queue, std::vector<SharedRange> reads, std::function<void()> land_it, const char* what) {
  for (const SharedRange& range : reads) {
    races_.on_read_begin(scheduler_.current(), range.address, range.bytes, what);
  }
  queue.operations.push_back({std::move(reads), std::move(land_it), queue.committed});
  if (landing_ == Landing::eager) land_next(queue);
}

void AsyncUnits::land_next(Queue& queue) {
  for (Operation& operation : queue.operations) {
    if (operation.landed) continue;
    operation.land();
    operation.landed = true;
    return;
  }
}

void AsyncUnits::wait(Queue& queue, unsigned groups) {
  while (!queue.operations.empty() && queue.operations.front().group + groups < queue.committed) {
    Operation& first = queue.operations.front();
    if (!first.landed) first.land();
    for (const SharedRange& range : first.reads) {
      races_.on_read_end(scheduler_.current(), range.address, range.bytes);
    }
    queue.operations.pop_front();
  }
}

void AsyncUnits::start_product(std::vector<SharedRange> reads, std::function<void()> land_it) {
  if (!warp().fenced) throw Error("wgmma.mma_async without a wgmma.fence since the last wait");
  start(warp(), std::move(reads), std::move(land_it), "wgmma");
}

void AsyncUnits::wait_for_products(unsigned groups) {
  wait(warp(), groups);
  warp().fenced = false;
}

void AsyncUnits::start_store(SharedRange from, std::function<void()> land_it) {
  start(stores_of(scheduler_.current()), {from}, std::move(land_it), "a bulk store");
}

void AsyncUnits::wait_for_stores(unsigned groups) { wait(stores_of(scheduler_.current()), groups); }

void AsyncUnits::set_registers(unsigned registers, bool more) {
  const unsigned threads = scheduler_.warps() * warp_size, warp = scheduler_.current().warp;
  if (registers_.empty()) registers_.assign(scheduler_.warps(), std::min(255u, block_registers / threads) / 8 * 8);
  const unsigned before = registers_[warp];
  if (more ? registers < before : registers > before) {
    throw Error("setmaxnreg: a warp of " + std::to_string(before) + " registers asks for " + std::to_string(registers));
  }
  while (more && registers - before > free_registers_) {
    waiting_for_registers_.push_back(&scheduler_.current());
    scheduler_.sleep("setmaxnreg");
  }
  free_registers_ += before - registers;
  registers_[warp] = registers;
  for (Thread* thread : waiting_for_registers_) scheduler_.wake(*thread);
  waiting_for_registers_.clear();
}

void AsyncUnits::perhaps_land() {
  if (landing_ != Landing::random || !random_.one_in(8)) return;
  land_a_load();
  if (const auto its = products_.find(scheduler_.current().warp); its != products_.end()) land_next(its->second);
  if (const auto its = stores_.find(scheduler_.current().rank); its != stores_.end()) land_next(its->second);
}

void AsyncUnits::check_ended() const {
  for (std::size_t warp = 0; warp < registers_.size(); ++warp) {
    if (registers_[warp] != registers_[warp / 4 * 4]) throw Error("the warps of a warpgroup differ in their registers");
  }
  if (!loads_.empty()) throw Error("a block ended with bulk copies on their way");
  for (const auto& [warp, queue] : products_) {
    if (!queue.operations.empty()) throw Error("a warp ended with products that were not waited for");
    // Two warps of a warpgroup never differ in what they multiply.
    const auto first = products_.find(warp / 4 * 4);
    if (first == products_.end() || first->second.committed != queue.committed) {
      throw Error("the warps of a warpgroup have committed different products");
    }
  }
  for (const auto& [thread, queue] : stores_) {
    if (!queue.operations.empty()) throw Error("a thread ended with bulk stores that were not waited for");
  }
}

}  // namespace simt
