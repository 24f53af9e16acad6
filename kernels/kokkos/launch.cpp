#include "kernels/kokkos/launch.hpp"

#include <Kokkos_Core.hpp>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

extern char** environ;

namespace distattn::kernels::kokkos {

namespace {

#if KOKKOS_VERSION >= 40100

// Kokkos ≥ 4.1 serialises what runs in one instance of an execution space, so that each thread needs its own; and it
// allocates to make one, so that they are kept for the next launch.
struct Instances {
  std::mutex mutex;
  std::vector<Kokkos::Serial> idle;
  std::size_t made = 0;
};

Instances& instances() {
  static auto* const kept = new Instances;  // never destroyed: Kokkos may be finalized after this file's statics
  return *kept;
}

void release_instances() { instances().idle.clear(); }

/// An instance for one thread and one launch.
class Instance {
 public:
  Instance() : space_(take()) {}
  ~Instance() {
    const std::lock_guard lock(instances().mutex);
    instances().idle.push_back(std::move(space_));
  }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const Kokkos::Serial& space() const { return space_; }

 private:
  static Kokkos::Serial take() {
    auto& [mutex, idle, made] = instances();
    const std::lock_guard lock(mutex);
    if (idle.empty()) {
      idle.reserve(made + 1);  // giving back cannot fail
      Kokkos::Serial fresh{Kokkos::NewInstance{}};
      ++made;
      return fresh;
    }
    Kokkos::Serial space = std::move(idle.back());
    idle.pop_back();
    return space;
  }

  Kokkos::Serial space_;
};

#else

void release_instances() {}

/// One instance serves all threads.
class Instance {
 public:
  const Kokkos::Serial& space() const { return space_; }

 private:
  Kokkos::Serial space_;
};

#endif

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

void initialize_once() {
  static std::once_flag once;
  static auto* const variables = new std::vector<char*>;
  std::call_once(once, [] {
    if (!Kokkos::is_initialized()) {
      int no_arguments = 0;
      const WithoutSettings alone(*variables);
      Kokkos::initialize(no_arguments, nullptr);
      std::atexit([] {
        if (Kokkos::is_initialized()) Kokkos::finalize();
      });
    }
    Kokkos::push_finalize_hook(release_instances);
  });
}

}  // namespace

std::string kokkos_version() {
  return std::to_string(KOKKOS_VERSION / 10000) + "." + std::to_string(KOKKOS_VERSION / 100 % 100) + "." +
         std::to_string(KOKKOS_VERSION % 100);
}

void detail::launch(Team& team, std::int64_t count, const StopFlag& stop, ErasedItem item, void* context) {
  initialize_once();
  std::atomic<std::int64_t> next{0};
  team.run([&](int thread) {
    const Instance instance;
    for (std::int64_t i; !stop.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < count;) {
      Kokkos::parallel_for("distattn", Kokkos::RangePolicy<Kokkos::Serial, std::int64_t>(instance.space(), i, i + 1),
                           [=](std::int64_t mine) { item(context, thread, mine); });
    }
  });
}

}  // namespace distattn::kernels::kokkos
