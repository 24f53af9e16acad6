#pragma once
/// Independent work for many ranks on the cores at hand.

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "distattn/host_resources.hpp"
#include "distattn/types.hpp"

namespace distattn {

/// Calls body(i) once for every i below `count`, from as many threads as there are cores and `worth_a_thread` calls for
/// each; rethrows the first exception.
template <class Body>
void for_each_in_parallel(int count, int worth_a_thread, const Body& body) {
  int workers = std::clamp(count / worth_a_thread, 1, 16);
  if (workers > 1) workers = std::min(workers, usable_cores());
  if (workers == 1) {
    for (int i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<int> next{0};
  std::exception_ptr failure;
  std::mutex guard;
  const auto work = [&] {
    try {
      for (int i = 0; (i = next.fetch_add(1)) < count;) body(i);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (failure == nullptr) failure = std::current_exception();
      next = count;
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (int w = 1; w < workers; ++w)
      threads.emplace_back([&] {
        leave_openmp_place();
        work();
      });
  } catch (const std::system_error&) {
    // The system refuses more threads: those that there are do all of it.
  }
  work();
  threads.clear();
  if (failure != nullptr) std::rethrow_exception(failure);
}

/// Calls body(rank) once for every rank, from several threads when there are many.
template <class Body>
void for_each_rank(int ranks, const Body& body) {
  for_each_in_parallel(ranks, 32, body);
}

}  // namespace distattn
