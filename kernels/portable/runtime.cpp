#include "kernels/portable/runtime.hpp"

#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "distattn/error.hpp"
#include "kernels/poll.hpp"

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

  void run(void (*call)(void*), void* context) {
    const std::lock_guard turn(turn_);
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
  }

  /// Nothing may be asked of it afterwards.
  void end() {
    run([](void* keeper) { static_cast<Keeper*>(keeper)->quit_ = true; }, this);
    thread_.join();
  }

 private:
  void work() {
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

/// Never destroyed: Kokkos may be finalized after this file's statics.
struct Process {
  std::mutex mutex;
  bool seen = false;         // whether it was initialised, by whomever
  Keeper* keeper = nullptr;  // if by this library
  pid_t id = 0;              // of the process, once seen
  std::atomic<bool> gone{false};
  std::vector<char*> variables;
};

Process& process() {
  static auto* const only = new Process;
  return *only;
}

bool is_gone() {
#if KOKKOS_VERSION >= 30700
  if (Kokkos::is_finalized()) return true;
#endif
  return process().gone.load();
}

void initialize(int threads, int device) {
  const WithoutSettings alone(process().variables);
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

void finalize_ours() {
  if (process().gone.load() || was_forked() || !Kokkos::is_initialized()) return;
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
  if (!is_gone()) return "";
  return "Kokkos cannot compute any more (this program has finalized it, which is for good): finalize it after the "
         "last call, or take backend cpu";
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
    here.keeper = new Keeper;
    const auto call = [&] { initialize(threads, device); };
    here.keeper->run([](void* erased) { (*static_cast<const decltype(call)*>(erased))(); },
                     const_cast<void*>(static_cast<const void*>(&call)));
    std::atexit(finalize_ours);
  }
  before_finalize([] { process().gone = true; });
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
  keeper->run(call, context);
}

void before_finalize(void (*release)()) { Kokkos::push_finalize_hook(release); }

}  // namespace distattn::kernels::portable
