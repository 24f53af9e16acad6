#pragma once
/// Ranks that meet at a port, each on a thread of its own.

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backends/launch/bootstrap.hpp"
#include "backends/launch/handshake.hpp"

namespace distattn::test {

using namespace backends::launch;

constexpr double patience_s = 20;  // where nothing is to time out

/// What `body` threw on each rank; empty: nothing.
inline std::vector<std::string> messages_of(int ranks, const std::function<void(Rank)>& body) {
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        messages[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

/// Of a file that nobody else has.
inline std::string scratch_path() {
  static std::atomic<int> count{0};
  return (std::filesystem::temp_directory_path() /
          ("distattn-meeting-" + std::to_string(::getpid()) + "-" + std::to_string(count++)))
      .string();
}

inline std::vector<std::byte> bytes_of_rank(Rank rank) {
  return std::vector<std::byte>(static_cast<std::size_t>(rank * 100003), static_cast<std::byte>(rank));
}

/// Throws unless every rank has what all brought.
inline void gather_and_check(Bootstrap& bootstrap) {
  for (int round = 0; round < 3; ++round) {
    const auto all = bootstrap.all_gather(bytes_of_rank(bootstrap.rank()));
    for (Rank rank = 0; rank < bootstrap.size(); ++rank) {
      if (all[static_cast<std::size_t>(rank)] != bytes_of_rank(rank)) throw std::runtime_error("other bytes came");
    }
    bootstrap.barrier();
  }
}

/// A port, a token and ranks that know both.
struct Port {
  Socket listener = std::move(*listen_on(0, Reach::this_machine));
  std::string token = draw_token();
  int ranks;
  double timeout_s;

  explicit Port(int count, double timeout = patience_s) : ranks(count), timeout_s(timeout) {}
  Place place(Rank rank) const { return {rank, ranks, rank, ranks}; }
  MeetingPoint where() const { return {{{"127.0.0.1", port_of(listener)}}, token}; }
  std::unique_ptr<Bootstrap> meet(Rank rank) {
    if (rank == 0) return std::make_unique<ProcessBootstrap>("test", place(0), listener, token, timeout_s);
    return std::make_unique<ProcessBootstrap>(
        "test", place(rank), [this] { return where(); }, timeout_s);
  }
  /// A rank that came, and then says nothing: stopped, as others see it.
  Socket silent(Rank rank) {
    return join_ranks(
        place(rank), [this] { return where(); }, after_seconds(patience_s));
  }
};

}  // namespace distattn::test
