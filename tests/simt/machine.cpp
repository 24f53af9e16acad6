#include "simt/machine.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

namespace simt {
namespace {

constexpr std::size_t max_shared_bytes = 227 * 1024;
constexpr std::size_t canary_bytes = 4096;

/// Shared memory as a block finds it: NaN in every type, and a canary behind that a stray write changes.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, shared_base, bytes + canary_bytes) != 0) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(memory);
    std::memset(data_, 0xff, bytes);
    std::memset(data_ + bytes, canary, canary_bytes);
  }
  ~SharedMemory() { std::free(data_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  void check_canary() const {
    for (std::size_t i = bytes_; i < bytes_ + canary_bytes; ++i) {
      if (data_[i] != std::byte{canary}) {
        throw Error("shared memory overrun: byte " + std::to_string(i) + " of " + std::to_string(bytes_));
      }
    }
  }

 private:
  static constexpr unsigned char canary = 0xa5;
  std::size_t bytes_;
  std::byte* data_;
};

}  // namespace

std::mutex& machine_mutex() {
  static std::mutex mutex;
  return mutex;
}

void Machine::run(const Launch& launch, const std::function<void()>& kernel) {
  if (launch.block.count() == 0 || launch.block.count() > 1024) throw Error("a block has 1 to 1024 threads");
  if (launch.shared_bytes > max_shared_bytes) throw Error("more than 227 KiB of shared memory");
  launch_ = launch;
  random_ = Random(launch.seed * 0x100000001b3u + 12345);
  bank_conflicts_ = 0;
  ++launches_;
  std::vector<unsigned> order(launch.grid.count());
  std::iota(order.begin(), order.end(), 0u);
  for (auto i = static_cast<std::uint32_t>(order.size()); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  for (unsigned b : order) {
    block_index_ = dim3(b % launch.grid.x, b / launch.grid.x % launch.grid.y, b / launch.grid.x / launch.grid.y);
    run_block(kernel);
  }
}

void Machine::run_block(const std::function<void()>& kernel) {
  const unsigned warps = (launch_.block.count() + warp_size - 1) / warp_size;
  const SharedMemory memory(launch_.shared_bytes);
  shared_ = memory.data();
  races_ = std::make_unique<RaceDetector>(launch_.shared_bytes, warps);
  meetings_.assign(std::size_t{warps} * warp_size, {});
  for (Barrier& barrier : barriers_) barrier = {};
  votes_.clear();
  landing_ = static_cast<Landing>(random_.below(3));
  async_ = std::make_unique<AsyncUnits>(scheduler_, *races_, random_, landing_);
  scheduler_.run(launch_.block, kernel, [this] { return async_->land_a_load(); });
  async_->check_ended();
  for (const Barrier& barrier : barriers_) {
    if (barrier.arrived != 0) throw Error("a block ended with threads arrived at an incomplete barrier");
  }
  memory.check_canary();
}

void Machine::fail(const std::string& problem) {
  throw Error("block (" + std::to_string(block_index_.x) + "," + std::to_string(block_index_.y) + "," +
              std::to_string(block_index_.z) + ") thread " + std::to_string(thread().rank) + ": " + problem);
}

Machine::Meeting& Machine::meeting_of(std::uint32_t mask) {
  return meetings_[std::size_t{thread().warp} * warp_size + static_cast<unsigned>(std::countr_zero(mask))];
}

bool Machine::join(const char* name, std::uint32_t mask, void* argument) {
  const Thread& me = thread();
  if ((mask >> me.lane & 1u) == 0) fail(std::string(name) + ": the lane is not in its own mask");
  Meeting& meeting = meeting_of(mask);
  if (meeting.arrived == 0) {
    meeting.mask = mask;
    meeting.name = name;
  }
  if (meeting.mask != mask) fail(std::string(name) + ": lanes disagree on the mask");
  if (meeting.name != name && std::strcmp(meeting.name, name) != 0) {
    fail("divergence: lanes of one warp are at " + std::string(meeting.name) + " and at " + name);
  }
  meeting.arguments[me.lane] = argument;
  meeting.arrived |= 1u << me.lane;
  if (meeting.arrived == mask) return true;
  scheduler_.sleep(name);
  perhaps_land();
  return false;
}

void Machine::finish_collective(std::uint32_t mask) {
  meeting_of(mask).arrived = 0;
  const unsigned first = thread().rank - thread().lane;
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if ((mask >> lane & 1u) != 0) scheduler_.wake(scheduler_.thread(first + lane));
  }
  scheduler_.perhaps_yield();
  perhaps_land();
}

void Machine::order_lanes(std::uint32_t mask) {
  std::vector<Thread*> lanes;
  const unsigned first = thread().rank - thread().lane;
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if ((mask >> lane & 1u) != 0) lanes.push_back(&scheduler_.thread(first + lane));
  }
  races_->synchronise_lanes(lanes);
}

void Machine::barrier(unsigned id, unsigned count, bool wait) {
  if (id >= named_barriers) fail("barrier ids end at 15");
  if (count == 0 || count % warp_size != 0) fail("a barrier's count is a multiple of 32");
  Barrier& barrier = barriers_[id];
  if (barrier.arrived == 0) barrier.expected = count;
  if (barrier.expected != count) fail("threads disagree on the count of barrier " + std::to_string(id));
  races_->release(thread(), barrier.seen);
  if (++barrier.arrived < count) {
    if (!wait) return;
    barrier.waiting.push_back(&thread());
    scheduler_.sleep(id == 0 ? "__syncthreads" : "a named barrier");
  } else {
    if (wait) thread().seen.join(barrier.seen);
    for (Thread* other : barrier.waiting) {
      other->seen.join(barrier.seen);
      scheduler_.wake(*other);
    }
    barrier = {};
    scheduler_.reshuffle();
  }
  perhaps_land();
}

bool Machine::any_thread(bool value) {
  const std::size_t vote = thread().votes++;
  if (votes_.size() <= vote) votes_.resize(vote + 1);
  if (value) votes_[vote] = 1;
  barrier(0, launch_.block.count(), true);
  return votes_[vote] != 0;
}

void Machine::fail_shared(std::uint32_t address, std::uint32_t bytes, const char* what) {
  if (address >= shared_base && address - shared_base + bytes <= launch_.shared_bytes) {
    fail(std::string(what) + ": misaligned shared address");
  }
  fail(std::string(what) + ": shared bytes " + std::to_string(static_cast<std::int64_t>(address) - shared_base) + "+" +
       std::to_string(bytes) + " outside " + std::to_string(launch_.shared_bytes));
}

void Machine::on_shared_read(std::uint32_t address, std::uint32_t bytes, const char* what) {
  checked([&] { races_->on_read(thread(), address - shared_base, bytes, what); });
}

void Machine::on_shared_write(std::uint32_t address, std::uint32_t bytes, const char* what) {
  checked([&] { races_->on_write(thread(), address - shared_base, bytes, what); });
}

void Machine::on_global(const void* address, std::size_t bytes, Access access, const char* what) {
  const std::size_t alignment = std::min<std::size_t>(bytes & -bytes, 16);
  if ((reinterpret_cast<std::uintptr_t>(address) & (alignment - 1)) != 0) {  // a remainder takes longer than the rest
    fail(std::string(what) + ": misaligned global address");
  }
  const dim3 b = block_index_;
  const unsigned block = b.x + launch_.grid.x * (b.y + launch_.grid.y * b.z);
  checked([&] { global_memory().touch(address, bytes, access, {launches_, block, thread().rank}, what); });
}

void Machine::start_copy(std::uint32_t address, const void* from, std::uint32_t bytes, bool zeros) {
  std::byte* into = shared(address, bytes, bytes, "cp.async");
  if (!zeros) on_global(from, bytes, Access::read, "cp.async");
  checked([&] { races_->on_copy(thread(), address - shared_base, bytes); });
  Thread& me = thread();
  const auto* source = zeros ? nullptr : static_cast<const std::byte*>(from);
  me.copies.push_back({address - shared_base, into, source, bytes, me.committed_groups});
  if (landing_ == Landing::eager) land(me.copies.back());
}

void Machine::land(Copy& copy) {
  if (copy.from != nullptr) {
    std::memcpy(copy.into, copy.from, copy.bytes);
  } else {
    std::memset(copy.into, 0, copy.bytes);
  }
  copy.landed = true;
}

void Machine::perhaps_land() {
  async_->perhaps_land();
  std::deque<Copy>& copies = thread().copies;
  if (landing_ != Landing::random || copies.empty() || !random_.one_in(8)) return;
  Copy& lucky = copies[random_.below(static_cast<std::uint32_t>(copies.size()))];
  if (!lucky.landed) land(lucky);
}

void Machine::wait_for_copies(unsigned groups) {
  Thread& me = thread();
  while (!me.copies.empty() && me.copies.front().group + groups < me.committed_groups) {
    Copy& copy = me.copies.front();
    if (!copy.landed) land(copy);
    races_->on_waited(me, copy.address, copy.bytes);
    me.copies.pop_front();
  }
}

}  // namespace simt
