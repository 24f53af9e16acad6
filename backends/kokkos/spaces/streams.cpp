#include "backends/kokkos/spaces/streams.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/thread.hpp"

namespace distattn::backends {

using kernels::portable::SpaceQueue;
using kernels::portable::Way;

/// What a mark's stream and those who wait for it share.
struct Passing {
  std::atomic<bool> over{false};
  std::exception_ptr failure;  // both written before
  std::chrono::steady_clock::time_point at;

  void end(std::exception_ptr why) {
    failure = std::move(why);
    at = std::chrono::steady_clock::now();
    over.store(true, std::memory_order_release);
    over.notify_all();
  }
  /// Returns when it has passed; throws what its stream failed with.
  void wait() const {
    over.wait(false, std::memory_order_acquire);
    if (failure != nullptr) std::rethrow_exception(failure);
  }
};

namespace {

/// What lies in the memory of spaces, of which a process uses one: ranks that are threads copy each other's.
struct Known {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> memory;  // bytes by where they begin

  bool has(const void* address) {
    const auto* const at = static_cast<const std::byte*>(address);
    const std::scoped_lock lock(mutex);
    const auto behind = memory.upper_bound(at);
    if (behind == memory.begin()) return false;
    const auto& [begin, bytes] = *std::prev(behind);
    return at < begin + bytes;
  }
};

Known& known() {
  static auto* const only = new Known;  // never destroyed: memory may be let go by statics
  return *only;
}

class SpaceMark final : public Mark {
 public:
  explicit SpaceMark(std::shared_ptr<const Passing> passing) : passing_(std::move(passing)) {}

  bool passed() const override {
    if (!passing_->over.load(std::memory_order_acquire)) return false;
    if (passing_->failure != nullptr) std::rethrow_exception(passing_->failure);
    return true;
  }
  double seconds_since(const Mark& earlier) const override {
    return std::chrono::duration<double>(passing_->at - dynamic_cast<const SpaceMark&>(earlier).passing_->at).count();
  }
  const std::shared_ptr<const Passing>& passing() const { return passing_; }

 private:
  const std::shared_ptr<const Passing> passing_;
};

}  // namespace

SpaceStreams::SpaceStreams(kernels::portable::SpaceDevice& device, int threads)
    : device_(device),
      name_(device.name()),
      threads_(threads),
      stop_memory_(device.allocate(sizeof(int), true)),
      stop_(new (stop_memory_.get()) int(0)) {}

std::shared_ptr<std::byte> SpaceStreams::allocate(std::size_t bytes, MemorySpace in) {
  if (in == MemorySpace::host) return device_.allocate(bytes, true);
  return know(device_.allocate(bytes, false), bytes);
}

std::shared_ptr<std::byte> SpaceStreams::know(std::shared_ptr<std::byte> memory, std::size_t bytes) {
  std::byte* const begin = memory.get();
  {
    const std::scoped_lock lock(known().mutex);
    known().memory[begin] = bytes;
  }
  return {begin, [memory = std::move(memory)](std::byte* own) mutable {
            {
              const std::scoped_lock lock(known().mutex);
              known().memory.erase(own);
            }
            memory.reset();
          }};
}

Way SpaceStreams::way(const void* into, const void* from) {
  const bool to_device = known().has(into), of_device = known().has(from);
  DISTATTN_EXPECT(to_device || of_device);
  return !of_device ? Way::in : !to_device ? Way::out : Way::within;
}

std::unique_ptr<SpaceStream> SpaceStreams::make_space_stream() {
  auto queue = device_.make_queue(threads_, stop_);
  try {
    return std::make_unique<SpaceStream>(std::move(queue));
  } catch (const std::system_error& refused) {
    throw no_thread(name_, "start kernels", refused);
  }
}

std::unique_ptr<Stream> SpaceStreams::open_stream(StreamPriority) { return make_space_stream(); }

struct SpaceStream::State {
  explicit State(std::unique_ptr<SpaceQueue> own) : queue(std::move(own)), thread([this] { work(); }) {}

  void work() {
    leave_openmp_place();
    for (Item item; take(item);) {
      try {
        if (failure == nullptr) item.work(*queue);
      } catch (...) {
        failure = std::current_exception();
      }
      if (item.passing != nullptr) item.passing->end(failure);
      item = {};
    }
  }

  struct Item {
    Work work;
    std::shared_ptr<Passing> passing;  // of a mark
  };

  void append(Item item) {
    const std::scoped_lock lock(mutex);
    items.push_back(std::move(item));
    changed.notify_one();
  }
  /// False when nothing comes any more.
  bool take(Item& item) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !items.empty() || ended; });
    if (items.empty()) return false;
    item = std::move(items.front());
    items.pop_front();
    return true;
  }
  void end() {
    {
      const std::scoped_lock lock(mutex);
      ended = true;
      changed.notify_one();
    }
    thread.join();
  }

  const std::unique_ptr<SpaceQueue> queue;
  std::mutex mutex;  // guards items and ended
  std::condition_variable changed;
  std::deque<Item> items;
  bool ended = false;
  std::exception_ptr failure;  // the thread's own
  std::thread thread;
};

SpaceStream::SpaceStream(std::unique_ptr<SpaceQueue> queue) : state_(std::make_unique<State>(std::move(queue))) {}

SpaceStream::~SpaceStream() {
  finish();
  state_->end();
}

void SpaceStream::append(Work work) { state_->append({std::move(work), nullptr}); }

void SpaceStream::copy(void* into, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  append([=, way = SpaceStreams::way(into, from)](SpaceQueue& queue) { queue.copy(into, from, bytes, way); });
}

void SpaceStream::clear(void* into, std::size_t bytes) {
  append([=](SpaceQueue& queue) { queue.clear(into, bytes); });
}

std::shared_ptr<const Mark> SpaceStream::mark() {
  const auto passing = std::make_shared<Passing>();
  state_->append({[](SpaceQueue& queue) { queue.fence(); }, passing});
  return std::make_shared<SpaceMark>(passing);
}

bool SpaceStream::wait_for(const Mark& mark) {
  const auto* const own = dynamic_cast<const SpaceMark*>(&mark);
  if (own == nullptr) return false;
  append([passing = own->passing()](SpaceQueue&) { passing->wait(); });
  return true;
}

void SpaceStream::finish() noexcept {
  const auto passing = std::make_shared<Passing>();
  state_->append({[](SpaceQueue& queue) { queue.fence(); }, passing});
  passing->over.wait(false, std::memory_order_acquire);
}

}  // namespace distattn::backends
