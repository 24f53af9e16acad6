#include "sharded_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "cpu_features.hpp"
#include "distattn/error.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "memory.hpp"

namespace distattn::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// When a rank began and ended a call of a pass, and its steps in between.
struct Call {
  Clock::time_point begin, end;
  Timeline timeline;
};
using RankCalls = std::vector<Call>;

/// Seconds of every call: from when the last call had ended everywhere, or the first rank began, to the last end.
std::vector<double> call_seconds(const std::vector<RankCalls>& ranks) {
  std::vector<double> seconds;
  std::optional<Clock::time_point> previous_end;
  for (std::size_t call = 0; call < ranks.front().size(); ++call) {
    Clock::time_point begin = ranks.front()[call].begin, end = ranks.front()[call].end;
    for (const RankCalls& rank : ranks) {
      begin = std::min(begin, rank[call].begin);
      end = std::max(end, rank[call].end);
    }
    if (previous_end) begin = std::max(begin, *previous_end);
    seconds.push_back(std::chrono::duration<double>(end - begin).count());
    previous_end = end;
  }
  return seconds;
}

/// Below which a share of the sorted values lies: straight between neighbours.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// All ranks' steps in one call.
Timeline timeline_of(const std::vector<RankCalls>& ranks, std::size_t call) {
  std::vector<Timeline> timelines;
  std::vector<double> begins_s;
  for (const RankCalls& rank : ranks) {
    timelines.push_back(rank[call].timeline);
    begins_s.push_back(std::chrono::duration<double>(rank[call].begin - ranks.front()[call].begin).count());
  }
  return join(timelines, begins_s);
}

/// The calls of one pass out of all: every `passes`-th from `first`.
Timing timing_of(const std::vector<RankCalls>& ranks, std::size_t first, std::size_t passes, int warmups) {
  const std::vector<double> all = call_seconds(ranks);
  std::vector<double> seconds;
  for (std::size_t i = first; i < all.size(); i += passes) seconds.push_back(all[i]);
  const auto measured = seconds.begin() + warmups;
  std::vector<double> sorted(measured, seconds.end());
  std::sort(sorted.begin(), sorted.end());
  const double middle = quantile(sorted, 0.5);
  const auto nearest = std::min_element(
      measured, seconds.end(), [middle](double a, double b) { return std::abs(a - middle) < std::abs(b - middle); });
  const auto call = first + passes * static_cast<std::size_t>(nearest - seconds.begin());
  return {seconds.front(),         middle, sorted.front(), quantile(sorted, 0.1), quantile(sorted, 0.9),
          timeline_of(ranks, call)};
}

/// One rank, from its device to its last call.
RankCalls run_rank(const Prepared& prepared, Transport& transport, RankTensors& tensors, const RunOptions& options) {
  const auto device = make_device(
      options.backend, {.threads = options.threads, .local_ranks = transport.size(), .local_rank = transport.rank()});
  Attention attention(prepared.plan, *device, transport);
  const Bindings bindings = tensors.bindings();
  RankCalls calls;
  const auto call = [&](auto pass) {
    const auto begin = Clock::now();
    const Timeline& timeline = (attention.*pass)(bindings);
    calls.push_back({begin, Clock::now(), timeline});
  };
  for (int i = 0; i < options.warmups + options.runs; ++i) {
    call(&Attention::forward);
    if (prepared.plan->has(Pass::backward)) call(&Attention::backward);
  }
  return calls;
}

/// Tensors and buffers of all ranks, and what the system gives.
void check_memory(const AttentionPlan& plan, Passes passes) {
  double needed = RankTensors::total_bytes(plan.outline(Pass::forward).sharding.problem, passes);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (!plan.has(pass)) continue;
    for (const std::int64_t bytes : plan.counts(pass).memory_bytes) needed += static_cast<double>(bytes);
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

int choose_threads(int asked, int ranks) { return asked > 0 ? asked : std::max(1, cpu_cores() / ranks); }

RunResult run_sharded(const Prepared& prepared, const Inputs& inputs, const RunOptions& options) {
  const Sharding& sharding = prepared.plan->outline(Pass::forward).sharding;
  const bool with_backward = prepared.plan->has(Pass::backward);
  const Passes passes = with_backward ? Passes::both : Passes::forward;
  check_memory(*prepared.plan, passes);

  const auto ranks = static_cast<std::size_t>(sharding.ranks);
  std::vector<std::optional<RankTensors>> tensors(ranks);
  std::vector<RankCalls> calls(ranks);
  run_ranks(sharding.ranks, [&](Rank rank, Transport& transport) {
    const auto r = static_cast<std::size_t>(rank);
    tensors[r].emplace(sharding, rank, inputs, passes);
    calls[r] = run_rank(prepared, transport, *tensors[r], options);
  });
  RunResult result;
  for (auto& each : tensors) result.ranks.push_back(std::move(*each));

  result.forward = timing_of(calls, 0, with_backward ? 2 : 1, options.warmups);
  if (with_backward) result.backward = timing_of(calls, 1, 2, options.warmups);
  return result;
}

}  // namespace distattn::cli
