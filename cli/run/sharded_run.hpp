#pragma once
/// Runs a proved schedule, and times it.

#include <string>
#include <vector>

#include "cli/options/launch_options.hpp"
#include "cli/run/inputs.hpp"
#include "cli/run/prepared.hpp"
#include "cli/run/rank_tensors.hpp"
#include "cli/run/timing.hpp"
#include "distattn/launch.hpp"

namespace distattn::cli {

/// Where the tensors lie that are timed. A device copies those of the host in every call.
enum class TensorPlace : std::uint8_t { device, host };

struct RunOptions {
  std::string backend;
  DeviceOptions device = {.threads = 1};  ///< of every rank, whose place is filled in
  int runs = 1, warmups = 0;
  TensorPlace tensors = TensorPlace::device;
};

struct RunResult {
  Timing forward, backward;
  std::vector<RankTensors> ranks;  ///< those of this process
};

/// The backend that is asked for, or the best usable one that computes `problem`, with all that is asked of its
/// device.
/// Throws Error(usage) with what the named one, or all, say against it.
std::string choose_backend(const ComputeOptions& asked, const Problem& problem, Passes passes);

/// Tensors and buffers of all ranks, and what the system gives this node and this process: throws Error(environment)
/// when it is not enough. A collective: no rank takes memory before all have seen what is free.
void check_memory(World& world, const AttentionPlan& plan, Passes passes);

/// Times are the same on every rank. Throws whatever a rank threw first, and Error(environment) when memory is not
/// enough. Collective.
RunResult run_sharded(World& world, const SharedPlan& plan, const Inputs& inputs, const RunOptions& options);

}  // namespace distattn::cli
