#pragma once
/// Instances of Kokkos's spaces: what one launch at a time may run in. What a space allows is said where it is used.

#include <Kokkos_Core.hpp>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/portable/runtime.hpp"

namespace distattn::kernels::portable {

/// Whether launches of several threads may run at once if each has an instance of its own.
template <class Space>
inline constexpr bool has_instances = false;

/// Whether it has one thread alone, which is whoever launches.
template <class Space>
inline constexpr bool is_serial = false;

/// Whether launches must come from the thread that initialised Kokkos.
template <class Space>
inline constexpr bool takes_one_thread = false;

/// Threads that an instance has room for.
template <class Space>
inline constexpr int most_threads = std::numeric_limits<int>::max();

/// Whether this thread may not launch on the space, but another thread of the process may.
template <class Space>
bool is_unfit() {
  return false;
}

/// What a thread of the space does before it computes.
template <class Space>
void begin_on_thread() {}

/// An instance of `threads` threads.
template <class Space>
Space new_instance(int threads);

/// An instance for one launch. Making one allocates, so that they are kept for the next launch of as many threads. Only
/// while Kokkos is there (need_kokkos).
template <class Space>
class Instance {
 public:
  explicit Instance(int threads) : kept_(take(threads)) {}
  ~Instance() {
    const std::lock_guard lock(pool().mutex);
    pool().idle.push_back(std::move(kept_));
  }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const Space& space() const { return kept_->space; }

 private:
  struct Kept {
    int threads;
    Space space;
  };
  struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<Kept>> idle;
    std::size_t made = 0;
  };

  static Pool& pool() {
    static auto* const only = new Pool;  // never destroyed: Kokkos may be finalized after this file's statics
    return *only;
  }

  static std::unique_ptr<Kept> take(int threads) {
    auto& [mutex, idle, made] = pool();
    const std::lock_guard lock(mutex);
    for (auto at = idle.rbegin(); at != idle.rend(); ++at) {
      if ((*at)->threads != threads) continue;
      std::unique_ptr<Kept> found = std::move(*at);
      idle.erase(std::next(at).base());
      return found;
    }
    idle.reserve(made + 1);  // giving back cannot fail
    if (made++ == 0) before_finalize([] { pool().idle.clear(); });
    return std::unique_ptr<Kept>(new Kept{threads, new_instance<Space>(threads)});
  }

  std::unique_ptr<Kept> kept_;
};

}  // namespace distattn::kernels::portable
