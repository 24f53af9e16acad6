#include "kernels/team.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "distattn/index.hpp"
#include "kernels/pages.hpp"
#include "kernels/poll.hpp"

namespace distattn::kernels {

struct Team::State {
  struct Scratch {
    Pages memory;
    std::size_t bytes = 0;
  };

  ~State() {
    quit = true;
    start_round();
    for (std::thread& worker : workers) worker.join();
  }

  std::vector<std::thread> workers;
  std::vector<Scratch> scratch;

  std::mutex mutex;
  std::condition_variable wake, finished;
  std::atomic<std::uint64_t> round{0};
  std::atomic<int> busy{0};
  std::atomic<bool> quit{false};
  void (*body)(void*, int) = nullptr;
  void* context = nullptr;
  std::exception_ptr failure;

  void call(int thread) {
    try {
      body(context, thread);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
    }
  }

  void await_round(std::uint64_t seen) {
    // Work that follows shortly after work is met awake; longer pauses are slept through.
    if (poll([&] { return round.load(std::memory_order_acquire) != seen; })) return;
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return round.load() != seen; });
  }

  void work(int thread) {
    leave_openmp_place();
    for (std::uint64_t seen = 0;; ++seen) {
      await_round(seen);
      if (quit.load()) return;
      call(thread);
      if (busy.fetch_sub(1) == 1) {
        const std::lock_guard lock(mutex);
        finished.notify_one();
      }
    }
  }

  void start_round() {
    {
      const std::lock_guard lock(mutex);
      round.fetch_add(1);
    }
    wake.notify_all();
  }
};

Team::Team(int threads) : state_(std::make_unique<State>()) {
  DISTATTN_EXPECT(threads >= 1);
  state_->scratch.resize(index(threads));
  try {
    for (int thread = 1; thread < threads; ++thread) {
      state_->workers.emplace_back([state = state_.get(), thread] { state->work(thread); });
    }
  } catch (const std::system_error& refused) {
    throw Error(ErrorKind::environment, "only " + std::to_string(state_->workers.size() + 1) + " of " +
                                            std::to_string(threads) + " threads could be started (" + refused.what() +
                                            "): ask for fewer");
  }
}

Team::~Team() = default;

int Team::size() const { return static_cast<int>(state_->scratch.size()); }

void Team::run_erased(void (*body)(void*, int), void* context) {
  State& state = *state_;
  state.body = body;
  state.context = context;
  state.failure = nullptr;
  if (!state.workers.empty()) {
    state.busy = static_cast<int>(state.workers.size());
    state.start_round();
  }
  state.call(0);
  poll([&] { return state.busy.load() == 0; });
  std::unique_lock lock(state.mutex);
  state.finished.wait(lock, [&] { return state.busy.load() == 0; });
  if (state.failure != nullptr) std::rethrow_exception(state.failure);
}

std::byte* Team::scratch(int thread, std::size_t bytes) {
  State::Scratch& own = state_->scratch[index(thread)];
  if (own.bytes < bytes) {
    own = {};
    own.memory = allocate_pages(bytes);
    if (own.memory == nullptr) throw std::bad_alloc();
    own.bytes = bytes;
  }
  return own.memory.get();
}

}  // namespace distattn::kernels
