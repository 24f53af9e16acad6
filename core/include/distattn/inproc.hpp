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
  /// Permutes the order in which messages are posted and delivered, and delays them at random: for tests. The same
  /// seed draws the same permutations and delays; the scheduler of the machine still has its say.
  std::optional<std::uint64_t> delivery_seed{};
};

/// Calls `body` once for each rank, on a thread of its own, with that rank's end of a transport between them, and
/// returns when all have. When ranks fail, the others are aborted, and the failure that came first is rethrown: not
/// the errors of those that were aborted because of it. Throws Error(usage) when ranks < 1.
void run_ranks(int ranks, const std::function<void(Rank, Transport&)>& body, const InprocOptions& options = {});
/// With a bootstrap between them too, whose collectives end with the failure of any rank.
void run_ranks(int ranks, const std::function<void(Rank, Transport&, Bootstrap&)>& body,
               const InprocOptions& options = {});

}  // namespace distattn
#pragma GCC visibility pop
