#pragma once
/// Independent work for many ranks on the cores at hand.

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "distattn/types.hpp"

namespace distattn {

/// Calls body(rank) once for every rank, from several threads when there are many; rethrows the first exception.
template <class Body>
void for_each_rank(int ranks, const Body& body) {
  constexpr int worth_a_thread = 32;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int workers = std::clamp(ranks / worth_a_thread, 1, std::min(cores, 16));
  if (workers == 1) {
    for (Rank rank = 0; rank < ranks; ++rank) body(rank);
    return;
  }
  std::atomic<Rank> next{0};
  std::exception_ptr failure;
  std::mutex guard;
  const auto work = [&] {
    try {
      for (Rank rank; (rank = next.fetch_add(1)) < ranks;) body(rank);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (failure == nullptr) failure = std::current_exception();
      next = ranks;
    }
  };
  std::vector<std::jthread> threads;
  for (int w = 1; w < workers; ++w) threads.emplace_back(work);
  work();
  threads.clear();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace distattn
