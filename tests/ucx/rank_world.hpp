#pragma once
/// Ranks as threads, with UCX between them.

#include <functional>

#include "distattn/engine.hpp"

namespace distattn::test {

using RankBody = std::function<void(Rank, Transport&)>;

/// As run_ranks(), over UcxTransports that take the memory of GPUs as it lies: that of emulated ones is the host's.
void run_ucx_ranks(int ranks, const RankBody& body);

}  // namespace distattn::test
