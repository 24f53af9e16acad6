#include "kernels/peak/peak.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <new>
#include <numeric>
#include <thread>

#include "distattn/index.hpp"
#include "kernels/pages.hpp"
#include "kernels/peak/keep.hpp"
#include "kernels/peak/x86.hpp"

namespace distattn::kernels {

namespace {

// In the vectors that every processor of this architecture has.
void multiply_add_baseline(long turns) {
  using Four = float __attribute__((vector_size(16)));
  Four sums[chains] = {};
  keep(sums);
  const Four factor = {0.5f, 0.5f, 0.5f, 0.5f}, term = factor;
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = sums[i] * factor + term;
  }
  keep(sums);
}

void multiply_add_baseline_fp64(long turns) {
  using Two = double __attribute__((vector_size(16)));
  Two sums[chains] = {};
  keep(sums);
  const Two factor = {0.5, 0.5}, term = factor;
  for (long turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) sums[i] = sums[i] * factor + term;
  }
  keep(sums);
}

// Seconds that this thread has run. What other programs take of a core is no part of its speed.
double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// How often a second all threads together do what body(thread) does once, side by side.
template <class Body>
double rate_of_all(Team& team, Body body) {
  std::atomic<int> waiting{team.size()};
  std::vector<double> rates(index(team.size()));
  team.run([&](int thread) {
    waiting.fetch_sub(1);
    while (waiting.load() != 0) std::this_thread::yield();
    const double start = thread_seconds();
    body(thread);
    rates[index(thread)] = 1 / (thread_seconds() - start);
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace

std::vector<MultiplyAdd> multiply_adds(DType dtype) {
  std::vector<MultiplyAdd> all = x86_multiply_adds(dtype);
  if (dtype == DType::bf16) {
    for (MultiplyAdd& each : tile_multiply_adds()) all.push_back(std::move(each));
  }
  if (dtype == DType::fp64) {
    all.push_back({"multiply and add (2 fp64)", 2 * 2 * chains, multiply_add_baseline_fp64});
  } else {
    all.push_back({"multiply and add (4 fp32)", 2 * 4 * chains, multiply_add_baseline});
  }
  return all;
}

double rate_of(const MultiplyAdd& instruction, Team& team, double seconds) {
  for (long turns = 1000;;) {
    const double rate = rate_of_all(team, [&](int) { instruction.run(turns); });
    const double took = team.size() / rate;
    if (took >= seconds / 2) return rate * static_cast<double>(turns) * static_cast<double>(instruction.flops);
    turns = took <= seconds / 1000 ? turns * 100 : static_cast<long>(static_cast<double>(turns) * seconds / took) + 1;
  }
}

double read_rate(Team& team) {
  // Of a thread; 512 MiB together, and behind what caches a core has: 64 MiB where there are many.
  const std::size_t values = std::max(std::size_t{1} << 23, (std::size_t{1} << 26) / index(team.size()));
  std::vector<Pages> memory(index(team.size()));
  std::vector<std::uint64_t> sums(memory.size());
  team.run([&](int thread) {
    Pages& own = memory[index(thread)];
    own = allocate_pages(values * sizeof(std::uint64_t));
    if (own == nullptr) throw std::bad_alloc();
    std::memset(own.get(), 0, values * sizeof(std::uint64_t));  // memory that was never written is one page of zeros
  });
  double best = 0;
  for (int reading = 0; reading < 5; ++reading) {
    const double rate = rate_of_all(team, [&](int thread) {
      const auto* from = reinterpret_cast<const std::uint64_t*>(memory[index(thread)].get());
      sums[index(thread)] = std::accumulate(from, from + values, std::uint64_t{0});
    });
    best = std::max(best, rate * static_cast<double>(values * sizeof(std::uint64_t)));
  }
  return best;
}

}  // namespace distattn::kernels
