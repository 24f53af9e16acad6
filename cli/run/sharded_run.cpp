#include "cli/run/sharded_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/run/memory.hpp"
#include "distattn/attention.hpp"
#include "distattn/device_tensors.hpp"
#include "distattn/error.hpp"
#include "distattn/index.hpp"
#include "distattn/registry.hpp"

namespace distattn::cli {
namespace {

/// One rank, from its device to its last call.
RankCalls run_rank(const SharedPlan& plan, Transport& transport, RankTensors& tensors, const RunOptions& options,
                   Bootstrap& bootstrap) {
  DeviceOptions of_rank = options.device;
  of_rank.local_ranks = bootstrap.local_size();
  of_rank.local_rank = bootstrap.local_rank();
  const auto device = make_device(options.backend, of_rank);
  Attention attention(plan, *device, transport);
  const Bindings bindings = tensors.bindings();
  std::optional<DeviceTensors> there;
  if (options.tensors == TensorPlace::device) there.emplace(*device, bindings);
  RankCalls calls;
  const auto call = [&](const Timeline& (Attention::*pass)(const Bindings&)) {
    bootstrap.barrier();  // a rank that is done with the last call would take cores and links from those that are not
    const auto begin = std::chrono::steady_clock::now();
    const Timeline& timeline = (attention.*pass)(there ? there->bindings() : bindings);
    calls.push_back({begin, std::chrono::steady_clock::now(), timeline});
  };
  for (int i = 0; i < options.warmups + options.runs; ++i) {
    call(&Attention::forward);
    if (plan->has(Pass::backward)) call(&Attention::backward);
  }
  if (there) there->fetch();
  return calls;
}

bool has_provider(const BackendInfo& info, const std::string& provider) {
  return provider.empty() || std::find(info.providers.begin(), info.providers.end(), provider) != info.providers.end();
}

}  // namespace

std::string choose_backend(const ComputeOptions& asked, const Problem& problem, Passes passes) {
  const std::string& name = asked.backend;
  const DeviceOptions trial = asked.device_options(1);
  std::string reasons;
  for (const BackendInfo& known : known_backends(BackendKind::device)) {
    if (!name.empty() && known.name != name) continue;
    const BackendInfo info = find_backend(BackendKind::device, known.name).value();
    if (name.empty() && !info.usable && !info.misconfigured) continue;
    if (name.empty() && !has_provider(info, asked.device.gpu.provider)) continue;
    const auto device = make_device(info.name, trial);  // refuses one that is misconfigured
    std::string why = device->why_not(problem, Pass::forward);
    if (why.empty() && passes == Passes::both) why = device->why_not(problem, Pass::backward);
    if (why.empty()) return info.name;
    const bool is_named = why.starts_with(info.name + " ");
    reasons += fmt::format("{}{}{}", reasons.empty() ? "" : "; ", is_named ? "" : info.name + ": ", why);
  }
  if (reasons.empty()) make_device(name, trial);  // says what is known
  refuse(fmt::format("no backend computes this ({}): see distattn info --matrix", reasons));
}

void check_memory(World& world, const AttentionPlan& plan, Passes passes) {
  double needed = RankTensors::total_bytes(plan.outline(Pass::forward).sharding.problem, passes);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (!plan.has(pass)) continue;
    for (const std::int64_t bytes : plan.counts(pass).memory_bytes) needed += static_cast<double>(bytes);
  }
  const double of_rank = needed / world.size();
  require_memory(
      world, [&](int ranks) { return of_rank * ranks; }, "this run");
}

RunResult run_sharded(World& world, const SharedPlan& plan, const Inputs& inputs, const RunOptions& options) {
  const Sharding& sharding = plan->outline(Pass::forward).sharding;
  const bool with_backward = plan->has(Pass::backward);
  const Passes passes = with_backward ? Passes::both : Passes::forward;
  check_memory(world, *plan, passes);

  const auto ranks_here = index(world.in_process() ? world.size() : 1);
  std::vector<std::optional<RankTensors>> tensors(ranks_here);
  std::vector<RankCalls> calls(ranks_here);
  world.run([&](Rank rank, Transport& transport, Bootstrap& bootstrap) {
    const auto here = index(rank - world.first());
    tensors[here].emplace(sharding, rank, inputs, passes, world.cores());
    calls[here] = run_rank(plan, transport, *tensors[here], options, bootstrap);
  });
  RunResult result;
  for (auto& each : tensors) result.ranks.push_back(std::move(*each));

  std::vector<Timing> timings = timings_of(world, calls, with_backward ? 2 : 1, options.warmups);
  result.forward = std::move(timings[0]);
  if (with_backward) result.backward = std::move(timings[1]);
  return result;
}

}  // namespace distattn::cli
