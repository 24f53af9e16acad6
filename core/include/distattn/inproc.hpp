#pragma once
/// Ranks as threads of this process.

#include <cstdint>
#include <functional>
#include <optional>

#include "distattn/bootstrap.hpp"
#include "distattn/engine.hpp"

#pragma GCC visibility push(default)
namespace distattn {

struct InprocOptions {
  /// For tests: permutes the order in which messages are posted and delivered, and delays them at random. The same seed
  /// draws the same permutations and delays, but the operating system still schedules the threads.
  std::optional<std::uint64_t> delivery_seed{};
};

/// Calls `body` once for each rank, each on its own thread, with that rank's end of a transport that connects them.
/// Returns when all calls have returned. If a rank fails, the others are aborted and the first failure is rethrown, not
/// the errors of the ranks that were aborted. A rank whose call has returned makes no more exchanges: others that wait
/// for it then get Error(peer). Throws Error(usage) unless 1 ≤ ranks ≤ 65536.
void run_ranks(int ranks, const std::function<void(Rank, Transport&)>& body, const InprocOptions& options = {});
/// The same with a bootstrap, whose collectives fail when any rank fails.
void run_ranks(int ranks, const std::function<void(Rank, Transport&, Bootstrap&)>& body,
               const InprocOptions& options = {});

}  // namespace distattn
#pragma GCC visibility pop
