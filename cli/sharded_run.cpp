#include "sharded_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "cpu_features.hpp"
#include "distattn/error.hpp"
#include "distattn/execute.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "memory.hpp"

namespace distattn::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// When each rank began and ended each call of a pass.
struct Stamps {
  Clock::time_point begin, end;
};
using RankStamps = std::vector<Stamps>;  // by call

/// Seconds of every call: from when the last call had ended everywhere, or the first rank began, to the last end.
std::vector<double> call_seconds(const std::vector<RankStamps>& ranks) {
  std::vector<double> seconds;
  std::optional<Clock::time_point> previous_end;
  for (std::size_t call = 0; call < ranks.front().size(); ++call) {
    Clock::time_point begin = ranks.front()[call].begin, end = ranks.front()[call].end;
    for (const RankStamps& rank : ranks) {
      begin = std::min(begin, rank[call].begin);
      end = std::max(end, rank[call].end);
    }
    if (previous_end) begin = std::max(begin, *previous_end);
    seconds.push_back(std::chrono::duration<double>(end - begin).count());
    previous_end = end;
  }
  return seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// The calls of one pass out of all: every `passes`-th from `first`.
Timing timing_of(const std::vector<double>& calls, std::size_t first, std::size_t passes, int warmups) {
  std::vector<double> seconds;
  for (std::size_t i = first; i < calls.size(); i += passes) seconds.push_back(calls[i]);
  return {seconds.front(), median({seconds.begin() + warmups, seconds.end()})};
}

/// One rank, from its device to its last call.
RankStamps run_rank(const Prepared& prepared, Rank rank, Transport& transport, RankTensors& tensors,
                    const RunOptions& options, const DeviceOptions& device_options) {
  const auto device = make_device(options.backend, device_options);
  const auto executor_of = [&](const ProvedSchedule& proved) {
    const Schedule& schedule = proved.schedule;
    return std::make_unique<Executor>(schedule.outline, schedule.ranks[static_cast<std::size_t>(rank)], rank, *device,
                                      transport);
  };
  const auto forward = executor_of(prepared.forward);
  const auto backward = prepared.backward ? executor_of(*prepared.backward) : nullptr;
  const Bindings bindings = tensors.bindings();
  RankStamps stamps;
  const auto call = [&](Executor& executor) {
    const auto begin = Clock::now();
    executor.run(bindings);
    stamps.push_back({begin, Clock::now()});
  };
  for (int i = 0; i < options.warmups + options.runs; ++i) {
    call(*forward);
    if (backward) call(*backward);
  }
  return stamps;
}

/// Tensors and buffers of all ranks, and what the system gives.
void check_memory(const Prepared& prepared, Passes passes) {
  double needed = RankTensors::total_bytes(prepared.forward.schedule.outline.sharding.problem, passes);
  for (const std::int64_t bytes : prepared.forward.counts.memory_bytes) needed += static_cast<double>(bytes);
  if (prepared.backward) {
    for (const std::int64_t bytes : prepared.backward->counts.memory_bytes) needed += static_cast<double>(bytes);
  }
  require_memory(needed, "this run");
}

}  // namespace

std::string choose_backend(const std::string& name, const Problem& problem, Passes passes) {
  std::string reasons;
  for (const BackendInfo& info : list_backends()) {
    if (info.kind != BackendKind::device || (name.empty() ? !info.usable : info.name != name)) continue;
    const auto device = make_device(info.name, {1, 1});
    std::string why = device->why_not(problem, Pass::forward);
    if (why.empty() && passes == Passes::both) why = device->why_not(problem, Pass::backward);
    if (why.empty()) return info.name;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", info.name, why);
  }
  if (reasons.empty()) make_device(name, {1, 1});  // says what is known
  refuse(fmt::format("no backend computes this ({}) see distattn info --matrix", reasons));
}

RunResult run_sharded(const Prepared& prepared, const Inputs& inputs, const RunOptions& options) {
  const Sharding& sharding = prepared.forward.schedule.outline.sharding;
  const Passes passes = prepared.backward ? Passes::both : Passes::forward;
  RunResult result;
  result.backend = choose_backend(options.backend, sharding.problem, passes);
  result.threads = options.threads > 0 ? options.threads : std::max(1, cpu_cores() / sharding.ranks);
  check_memory(prepared, passes);

  const auto ranks = static_cast<std::size_t>(sharding.ranks);
  std::vector<std::optional<RankTensors>> tensors(ranks);
  std::vector<RankStamps> stamps(ranks);
  RunOptions chosen = options;
  chosen.backend = result.backend;
  run_ranks(sharding.ranks, [&](Rank rank, Transport& transport) {
    const auto r = static_cast<std::size_t>(rank);
    tensors[r].emplace(sharding, rank, inputs, passes);
    stamps[r] = run_rank(prepared, rank, transport, *tensors[r], chosen, {result.threads, sharding.ranks});
  });
  for (auto& each : tensors) result.ranks.push_back(std::move(*each));

  const std::vector<double> calls = call_seconds(stamps);
  const std::size_t passes_run = prepared.backward ? 2 : 1;
  result.forward = timing_of(calls, 0, passes_run, options.warmups);
  if (prepared.backward) result.backward = timing_of(calls, 1, passes_run, options.warmups);
  return result;
}

}  // namespace distattn::cli
