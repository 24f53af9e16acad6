#include "kernels/peak/peak.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <numeric>
#include <thread>

#include "distattn/index.hpp"
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

namespace {

/// Reads as fast as a core does: memory in several places at once, because what a core fetches by itself ahead of one
/// place ends with each page. One place alone was read at less than half the rate.
std::uint64_t sum_of(const std::uint64_t* from, std::size_t values) {
  using Pair = std::uint64_t __attribute__((vector_size(16)));
  constexpr std::size_t places = 4, line = 8;
  const std::size_t apart = values / places;
  Pair sums[places] = {};
  for (std::size_t at = 0; at < apart; at += line) {
    for (std::size_t place = 0; place < places; ++place) {
      const auto* const pairs = reinterpret_cast<const Pair*>(from + place * apart + at);
      sums[place] += (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]);
    }
  }
  const Pair sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return sum[0] + sum[1];
}

}  // namespace

double read_rate(Team& team) {
  // Of a thread; 512 MiB together, and behind what caches a core has: 64 MiB where there are many.
  const std::size_t values = std::max(std::size_t{1} << 23, (std::size_t{1} << 26) / index(team.size()));
  std::vector<std::unique_ptr<std::uint64_t[]>> memory(index(team.size()));
  std::vector<std::uint64_t> sums(memory.size());
  team.run([&](int thread) { memory[index(thread)] = std::make_unique<std::uint64_t[]>(values); });
  double best = 0;
  for (int reading = 0; reading < 5; ++reading) {
    const double rate =
        rate_of_all(team, [&](int thread) { sums[index(thread)] = sum_of(memory[index(thread)].get(), values); });
    best = std::max(best, rate * static_cast<double>(values * sizeof(std::uint64_t)));
  }
  return best;
}

}  // namespace distattn::kernels
