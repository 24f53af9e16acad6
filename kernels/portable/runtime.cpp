#include "kernels/portable/runtime.hpp"

#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "distattn/error.hpp"
#include "distattn/host_resources.hpp"
#include "kernels/poll.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

extern char** environ;

namespace distattn::kernels::portable {

namespace {

/// The environment without KOKKOS_*, which are meant for other programs, and some of which end this one where they
/// cannot be read. Another thread that looks up a variable meanwhile finds it: a list takes the place of another, and
/// none is ever freed or changed.
class WithoutSettings {
 public:
  explicit WithoutSettings(std::vector<char*>& list) : kept_(list) {
    for (char** variable = before_; variable != nullptr && *variable != nullptr; ++variable) {
      if (std::strncmp(*variable, "KOKKOS_", 7) != 0) kept_.push_back(*variable);
    }
    kept_.push_back(nullptr);
    environ = kept_.data();
  }
  ~WithoutSettings() {
    if (environ == kept_.data()) environ = before_;  // else somebody has added a variable, and must keep it
  }
  WithoutSettings(const WithoutSettings&) = delete;
  WithoutSettings& operator=(const WithoutSettings&) = delete;

 private:
  char** const before_ = environ;
  std::vector<char*>& kept_;
};

/// A thread that does what others ask of it, one call after the other.
class Keeper {
 public:
  Keeper() : thread_([this] { work(); }) {}

  /// False once it has been ended.
  bool run(void (*call)(void*), void* context) {
    const std::lock_guard turn(turn_);
    if (quit_) return false;
    std::unique_lock lock(mutex_);
    call_ = call;
    context_ = context;
    failure_ = nullptr;
    busy_ = true;
    changed_.notify_all();
    lock.unlock();
    poll([this] { return !busy_.load(); });
    lock.lock();
    changed_.wait(lock, [this] { return !busy_.load(); });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return true;
  }

  void end() {
    run([](void* keeper) { static_cast<Keeper*>(keeper)->quit_ = true; }, this);
    thread_.join();
  }

 private:
  void work() {
    leave_openmp_place();
    while (!quit_) {
      poll([this] { return busy_.load(); });
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return busy_.load(); });
      lock.unlock();
      try {
        call_(context_);
      } catch (...) {
        failure_ = std::current_exception();
      }
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex turn_;  // of those who ask
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> busy_{false};
  bool quit_ = false;
  void (*call_)(void*) = nullptr;
  void* context_ = nullptr;
  std::exception_ptr failure_;
  std::thread thread_;
};

/// Why Kokkos is not there any more, and what to do about it.
struct Gone {
  const char* why;
  const char* advice;
};
constexpr Gone finalized = {"this program has finalized it, which is for good",
                            "finalize it after the last call, or take backend cpu"};
constexpr Gone exiting = {"this process is exiting", "end its last call before"};
constexpr Gone failed = {"it could not be initialised before", "start the program anew, or take backend cpu"};

/// Never destroyed: Kokkos may be finalized after this file's statics.
struct Process {
  std::mutex mutex;
  bool seen = false;         // whether it was initialised, by whomever
  Keeper* keeper = nullptr;  // if by this library
  pid_t id = 0;              // of the process, once seen
  std::atomic<const Gone*> gone{nullptr};
  std::vector<char*> variables;
};

Process& process() {
  static auto* const only = new Process;
  return *only;
}

const Gone* gone() {
  const Gone* const known = process().gone.load();
#if KOKKOS_VERSION >= 30700
  if (known == nullptr && Kokkos::is_finalized()) return &finalized;
#endif
  return known;
}

/// The first reason is the one to tell.
void now_gone(const Gone& why) {
  const Gone* none = nullptr;
  process().gone.compare_exchange_strong(none, &why);
}

void initialize(int threads, int device) {
  const WithoutSettings alone(process().variables);
#ifdef _OPENMP
  expect_room_for(threads);
  omp_set_num_threads(threads);  // Kokkos first starts as many as OMP_NUM_THREADS says, whatever it is told
#endif
#if KOKKOS_VERSION >= 30700
  auto settings = Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true);
  if (device != no_device) settings.set_device_id(device);
  Kokkos::initialize(settings);
#else
  Kokkos::InitArguments arguments;
  arguments.num_threads = threads;
  arguments.disable_warnings = true;
  if (device != no_device) arguments.device_id = device;
  Kokkos::initialize(arguments);
#endif
}

/// On a thread of its own.
Keeper* initialize_here(int threads, int device) {
  auto keeper = std::make_unique<Keeper>();
  const auto call = [&] { initialize(threads, device); };
  try {
    keeper->run([](void* erased) { (*static_cast<const decltype(call)*>(erased))(); },
                const_cast<void*>(static_cast<const void*>(&call)));
  } catch (...) {
    now_gone(failed);  // what it has begun, it ends the program for when it is told to begin again
    keeper->end();
    throw;
  }
  return keeper.release();
}

void finalize_ours() {
  if (process().gone.load() != nullptr || was_forked() || !Kokkos::is_initialized()) return;
  now_gone(exiting);
  Keeper& keeper = *process().keeper;
  keeper.run([](void*) { Kokkos::finalize(); }, nullptr);
  keeper.end();
}

}  // namespace

std::string kokkos_version() {
  return std::to_string(KOKKOS_VERSION / 10000) + "." + std::to_string(KOKKOS_VERSION / 100 % 100) + "." +
         std::to_string(KOKKOS_VERSION % 100);
}

std::string why_no_kokkos() {
  const Gone* const reason = gone();
  return reason == nullptr ? ""
                           : std::string("Kokkos cannot compute any more (") + reason->why + "): " + reason->advice;
}

void need_kokkos(int threads, int device) {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  const std::string why = why_no_kokkos();
  if (!why.empty()) throw Error(ErrorKind::environment, why);
  if (here.seen) return;
  threads = std::max(threads, static_cast<int>(std::thread::hardware_concurrency()));
  threads = std::min(threads, most_openmp_threads);
  if (!Kokkos::is_initialized()) {
    try {
      here.keeper = initialize_here(threads, device);
    } catch (const std::system_error& refused) {
      throw no_threads(refused);
    }
    std::atexit(finalize_ours);
  }
  before_finalize([] { now_gone(finalized); });
  here.id = getpid();
  here.seen = true;
}

bool was_forked() { return process().id != 0 && process().id != getpid(); }

void on_kokkos_thread(void (*call)(void* context), void* context) {
  Keeper* const keeper = process().keeper;
  if (keeper == nullptr) {
    throw Error(
        ErrorKind::environment,
        "Kokkos takes work for its threads from one thread of the program alone (which has initialised it): let "
        "distattn initialise Kokkos, or take another space");
  }
  if (was_forked()) {
    throw Error(ErrorKind::environment,
                "Kokkos's threads are not in this process (it was forked from one that computed with them): start a "
                "process of its own, or take another space");
  }
  if (!keeper->run(call, context)) throw Error(ErrorKind::environment, why_no_kokkos());
}

Error no_threads(const std::system_error& refused) {
  return {ErrorKind::environment, std::string("Kokkos gets no threads (") + refused.what() +
                                      "): ask for fewer, or raise the limits of threads and of memory"};
}

void expect_room_for(int threads) {
  std::mutex gate;
  std::unique_lock closed(gate);
  std::vector<std::thread> started;
  started.reserve(static_cast<std::size_t>(threads));
  const auto end = [&] {
    closed.unlock();
    for (std::thread& each : started) each.join();
  };
  try {
    while (started.size() < static_cast<std::size_t>(threads)) {
      started.emplace_back([&gate] { const std::lock_guard pass(gate); });
    }
  } catch (const std::system_error& refused) {
    end();
    throw no_threads(refused);
  }
  end();
}

void before_finalize(void (*release)()) { Kokkos::push_finalize_hook(release); }

}  // namespace distattn::kernels::portable
