#include "simt/emulated_driver.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "distattn/error.hpp"
#include "simt/global_memory.hpp"
#include "simt/queue.hpp"
#include "simt/random.hpp"

namespace simt {
namespace {

namespace cuda = distattn::backends::cuda;
using distattn::backends::Mark;
using distattn::backends::StreamPriority;
using Clock = std::chrono::steady_clock;

std::atomic<Clock::duration> ahead{Clock::duration::zero()};  // of the host's clock
std::atomic<int> waits{0};

class EmulatedMark final : public Mark, public std::enable_shared_from_this<EmulatedMark> {
 public:
  bool passed() const override {
    const std::scoped_lock lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    constexpr int patience = 100;  // who only looks whether something has ended does not ask as often
    if (!at_.has_value() && ++asked_in_vain_ == patience) ++waits;
    return at_.has_value();
  }
  double seconds_since(const Mark& earlier) const override {
    const auto& other = dynamic_cast<const EmulatedMark&>(earlier);
    const std::scoped_lock lock(mutex_, other.mutex_);
    return std::chrono::duration<double>(*at_ - *other.at_).count();
  }

  void pass() {
    const std::scoped_lock lock(mutex_);
    at_ = Clock::now() + ahead.load();
    changed_.notify_all();
  }
  void fail(std::exception_ptr failure) {
    const std::scoped_lock lock(mutex_);
    failure_ = failure;
    changed_.notify_all();
  }
  void await() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return at_.has_value() || failure_ != nullptr; });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int asked_in_vain_ = 0;
  std::optional<Clock::time_point> at_;
  std::exception_ptr failure_;
};

/// A thread that does work in order, with pauses of the seed's choice.
class StreamThread final : public Queue {
 public:
  StreamThread(std::uint64_t seed, const void* gpu) : gpu_(gpu), random_(seed), thread_([this] { serve(); }) {}
  ~StreamThread() override {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void submit(std::function<void()> work) override {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back(std::move(work));
    changed_.notify_all();
  }
  std::uint64_t next_seed() override {
    const std::scoped_lock lock(mutex_);
    return random_.next();
  }
  const void* gpu() const override { return gpu_; }
  std::shared_ptr<EmulatedMark> mark() {
    auto mark = std::make_shared<EmulatedMark>();
    submit([this, mark] { failure_ == nullptr ? mark->pass() : mark->fail(failure_); });
    return mark;
  }

 private:
  void serve() {
    Random pauses(next_seed());
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        work = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (pauses.one_in(8)) std::this_thread::sleep_for(std::chrono::microseconds(pauses.below(200)));
      try {
        work();
      } catch (const distattn::Error&) {
        failure_ = std::current_exception();
      } catch (const std::exception& error) {
        failure_ = std::make_exception_ptr(
            distattn::Error(distattn::ErrorKind::environment, std::string("a kernel failed: ") + error.what()));
      }
    }
  }

  const void* const gpu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool closing_ = false;
  Random random_;
  std::exception_ptr failure_;  // the thread's own
  std::thread thread_;
};

/// Keeps work, and does none.
class Recording final : public Queue {
 public:
  Recording(std::uint64_t seed, const void* gpu) : gpu_(gpu), random_(seed) {}

  void submit(std::function<void()> work) override { work_.push_back(std::move(work)); }
  std::uint64_t next_seed() override { return random_.next(); }
  const void* gpu() const override { return gpu_; }
  std::vector<std::function<void()>> take() { return std::move(work_); }

 private:
  const void* const gpu_;
  Random random_;
  std::vector<std::function<void()>> work_;
};

struct EmulatedGraph final : cuda::Graph {
  std::vector<std::function<void()>> work;
  std::atomic<int>* starts = nullptr;
};

/// As a stream of CUDA while it records: what only work under way can answer is an error.
class RecordingStream final : public cuda::Stream {
 public:
  explicit RecordingStream(Recording& recording) : recording_(recording) {}

  void* handle() const override { return static_cast<Queue*>(&recording_); }
  void copy(void* into, const void* from, std::size_t bytes) override {
    recording_.submit([=] { std::memcpy(into, from, bytes); });
  }
  void clear(void* into, std::size_t bytes) override {
    recording_.submit([=] { std::memset(into, 0, bytes); });
  }
  void start(const cuda::Graph&) override { refuse(); }
  std::shared_ptr<const Mark> mark() override { refuse(); }
  bool wait_for(const Mark&) override { refuse(); }
  void finish() noexcept override {}

 private:
  [[noreturn]] static void refuse() {
    throw distattn::Error(distattn::ErrorKind::environment, "the emulator records kernels, copies and clears alone");
  }

  Recording& recording_;
};

class EmulatedStream final : public cuda::Stream {
 public:
  explicit EmulatedStream(std::shared_ptr<StreamThread> thread) : thread_(std::move(thread)) {}

  void* handle() const override { return static_cast<Queue*>(thread_.get()); }
  void copy(void* into, const void* from, std::size_t bytes) override {
    thread_->submit([=] { std::memcpy(into, from, bytes); });
    if (!global_memory().has(into)) finish();  // as CUDA's calls into memory that is not pinned
  }
  void clear(void* into, std::size_t bytes) override {
    thread_->submit([=] { std::memset(into, 0, bytes); });
  }
  void start(const cuda::Graph& graph) override {
    const auto& recorded = dynamic_cast<const EmulatedGraph&>(graph);
    for (const auto& work : recorded.work) thread_->submit(work);
    ++*recorded.starts;
  }
  std::shared_ptr<const Mark> mark() override { return thread_->mark(); }
  bool wait_for(const Mark& mark) override {
    const auto awaited = dynamic_cast<const EmulatedMark&>(mark).shared_from_this();
    thread_->submit([awaited] { awaited->await(); });
    return true;
  }
  void finish() noexcept override {
    ++waits;
    try {
      thread_->mark()->await();
    } catch (const distattn::Error&) {
      // it has ended, badly
    }
  }

 private:
  std::shared_ptr<StreamThread> thread_;
};

}  // namespace

std::shared_ptr<std::byte> EmulatedDriver::allocate(std::size_t bytes, distattn::MemorySpace space) {
  if (bytes > free_bytes_) {
    throw distattn::Error(distattn::ErrorKind::environment,
                          "emulated has no room for " + std::to_string(bytes) + " bytes");
  }
  const std::size_t pinned = space == distattn::MemorySpace::host ? bytes : 0;
  free_bytes_ -= bytes;
  pinned_bytes_ += pinned;
  constexpr std::size_t alignment = 256;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0xff, bytes);
  global_memory().add(memory, bytes);
  return {static_cast<std::byte*>(memory), [this, bytes, pinned](std::byte* freed) {
            global_memory().remove(freed);
            std::free(freed);
            free_bytes_ += bytes;
            pinned_bytes_ -= pinned;
          }};
}

std::unique_ptr<cuda::Stream> EmulatedDriver::make_stream(StreamPriority) {
  return std::make_unique<EmulatedStream>(std::make_shared<StreamThread>(seed_++, this));
}

std::unique_ptr<cuda::Stream> EmulatedDriver::adopt_stream(void* stream) {
  auto* thread = static_cast<StreamThread*>(static_cast<Queue*>(stream));
  return std::make_unique<EmulatedStream>(std::shared_ptr<StreamThread>(thread, [](StreamThread*) {}));
}

std::unique_ptr<cuda::Graph> EmulatedDriver::record(const std::function<void(cuda::Stream&)>& work) {
  Recording recording(seed_++, this);
  RecordingStream stream(recording);
  work(stream);
  auto graph = std::make_unique<EmulatedGraph>();
  graph->work = recording.take();
  graph->starts = &graph_starts_;
  ++graphs_;
  return graph;
}

int EmulatedDriver::host_waits() { return waits; }

void EmulatedDriver::set_clock_on(std::chrono::seconds by) { ahead = ahead.load() + by; }

void EmulatedDriver::check(int status, const char* what) const {
  if (status == 0 && (failing_ != what || --calls_to_failure_ != 0)) return;
  throw distattn::Error(distattn::ErrorKind::environment, std::string("the emulator could not ") + what);
}

}  // namespace simt
