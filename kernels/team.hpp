#pragma once
/// The threads that one rank computes with, created once, and the scratch memory that they keep.

#include <cstddef>
#include <memory>
#include <type_traits>

namespace distattn::kernels {

/// Threads 0 … size()-1; thread 0 is whoever calls run(). Used by one caller at a time; different teams are
/// independent.
class Team {
 public:
  /// threads ≥ 1; starts threads - 1 workers.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const;

  /// Calls body(thread) once on every thread and returns when all have. Rethrows the first exception of any.
  template <class Body>
  void run(Body&& body) {
    run_erased([](void* context, int thread) { (*static_cast<std::remove_reference_t<Body>*>(context))(thread); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  /// Memory of one thread, 64-byte aligned, kept from call to call and grown when `bytes` is more than ever before;
  /// growing loses what it held.
  std::byte* scratch(int thread, std::size_t bytes);

 private:
  void run_erased(void (*body)(void*, int), void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distattn::kernels
