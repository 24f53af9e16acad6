#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "cli/bench/calibration_runs.hpp"
#include "cli/run/all_gather.hpp"
#include "cli/run/timing.hpp"
#include "distattn/index.hpp"
#include "distattn/registry.hpp"
#include "distattn/simulate.hpp"
#include "distattn/subgroup.hpp"

namespace distattn::cli {
namespace {

/// Ranks of which each sees one token of its neighbour: everything travels and hardly anything is computed.
Problem traffic(const CalibrationOptions& options, std::int64_t tokens_per_rank, int ranks) {
  Problem problem = problem_of(options, DType::fp32, tokens_per_rank * ranks);
  problem.mask.left = 1;
  return problem;
}

/// Seconds of the quickest exchange, both of whose ends waited for nothing else.
double exchange_seconds(const CalibrationOptions& options, std::int64_t tokens) {
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < options.runs; ++run) {
    const Measured measured = measure(options, traffic(options, tokens, 2), "ring", 2, Passes::forward);
    measured.for_each_step(Pass::forward, Lane::near, [&](Rank, StepId, double s) { least = std::min(least, s); });
  }
  return least;
}

/// What an exchange takes of a core besides its bytes: its rank's thread sleeps and wakes. Every rank sends its only
/// token to every other, once in an exchange for each and once in one for all: the rest that runs take is the same.
double wake_seconds(CalibrationOptions options) {
  const int cores = busy_ranks(options), ranks = std::max(8, 2 * cores);
  options.heads = options.kv_heads = 1;
  Problem problem = problem_of(options, DType::fp32, ranks);
  problem.mask = full_mask();
  constexpr int runs = 50;
  const auto seconds = [&](const char* schedule) {
    return measure(options, problem, schedule, ranks, Passes::forward, runs).result.forward.median_s;
  };
  const double more_exchanges = ranks * (ranks - 2.0);
  std::vector<double> wakes;
  for (int round = 0; round < options.runs; ++round) {
    wakes.push_back((seconds("ring") - seconds("allgather")) * cores / more_exchanges);
  }
  return std::max(0.0, median(std::move(wakes)));
}

std::int64_t touched_bytes(const AttentionPlan& plan, Rank rank, StepId step) {
  const RankProgram program = plan.program(Pass::forward, rank);
  return sketch(plan.outline(Pass::forward), plan.tiles(Pass::forward), rank, program).steps[index(step)].touched_bytes;
}

/// Of a rank's exchanges with its partner. Zero for a rank without one.
struct ExchangeTime {
  double least_s = 0, median_s = 0;
};

/// Everybody's, while every rank exchanges keys and values of `tokens` tokens with its partner; who is their own
/// partner waits. Collective.
std::vector<ExchangeTime> time_exchanges(World& world, const CalibrationOptions& options,
                                         const std::vector<Rank>& partners, std::int64_t tokens) {
  constexpr int runs = 20;
  const Problem problem = traffic(options, tokens, 2);
  const auto plan = std::make_shared<const AttentionPlan>(problem, 2, ScheduleRequest{"ring"});
  const Inputs inputs = Inputs::random(shape_of(problem), 0);
  std::vector<double> seconds;
  world.run([&](Rank rank, Transport& transport, Bootstrap& bootstrap) {
    const Rank partner = partners[index(rank)];
    if (partner == rank) {
      for (int run = 0; run <= runs; ++run) bootstrap.barrier();
      return;
    }
    DeviceOptions of_rank = options.device;
    of_rank.local_ranks = bootstrap.local_size();
    of_rank.local_rank = bootstrap.local_rank();
    const auto device = make_device(options.backend, of_rank);
    Subgroup pair(transport, {std::min(rank, partner), std::max(rank, partner)});
    RankTensors tensors(plan->outline(Pass::forward).sharding, pair.rank(), inputs, Passes::forward, 1);
    Attention attention(plan, *device, pair);
    for (int run = 0; run <= runs; ++run) {  // the first is a warm-up
      bootstrap.barrier();
      for (const Span& span : attention.forward(tensors.bindings()).spans) {
        if (run > 0 && span.lane == Lane::near) seconds.push_back(span.end_s - span.start_s);
      }
    }
  });
  ExchangeTime mine;
  if (!seconds.empty()) mine = {*std::min_element(seconds.begin(), seconds.end()), median(seconds)};
  return all_gather<ExchangeTime>(world, std::span(&mine, 1));
}

/// A port of a rank while all that have a partner exchange with it: the mean over these. Collective.
Link measure_pairs(World& world, const CalibrationOptions& options, const std::vector<Rank>& partners) {
  constexpr std::int64_t few = 1, many = 2048;
  const auto small = time_exchanges(world, options, partners, few);
  const auto large = time_exchanges(world, options, partners, many);
  const double bytes = 1.0 * (many - few) * options.kv_heads * (options.head_dim + options.value_dim) * sizeof(float);
  Link sum;
  int ranks = 0;
  for (std::size_t rank = 0; rank < large.size(); ++rank) {
    if (large[rank].least_s == 0) continue;
    sum.bytes_per_s += bytes / std::max(large[rank].least_s - small[rank].least_s, large[rank].least_s / 2);
    sum.latency_s += small[rank].median_s;
    ++ranks;
  }
  return {sum.bytes_per_s / ranks, sum.latency_s / ranks};
}

/// Every rank's partner, at first itself.
std::vector<Rank> nobody(int ranks) {
  std::vector<Rank> partners(index(ranks));
  std::iota(partners.begin(), partners.end(), 0);
  return partners;
}

void join(Rank a, Rank b, std::vector<Rank>& partners) {
  partners[index(a)] = b;
  partners[index(b)] = a;
}

/// The ranks of every node.
std::vector<std::vector<Rank>> nodes_of(World& world) {
  const Rank mine = world.first() - world.local_rank();
  std::map<Rank, std::vector<Rank>> nodes;
  Rank rank = 0;
  for (const Rank node : all_gather<Rank>(world, std::span(&mine, 1))) nodes[node].push_back(rank++);
  std::vector<std::vector<Rank>> ranks;
  for (auto& [node, its] : nodes) ranks.push_back(std::move(its));
  return ranks;
}

/// Between the first two nodes: what one pair of ranks reaches alone, and each of as many as there are at once. Where
/// all together reach hardly more than one, they share the node's link.
void measure_far(World& world, const CalibrationOptions& options, const std::vector<std::vector<Rank>>& nodes,
                 MeasuredLinks& links) {
  const std::vector<Rank>&first = nodes[0], &second = nodes[1];
  std::vector<Rank> one = nobody(world.size()), all = one;
  join(first.front(), second.front(), one);
  const Link alone = measure_pairs(world, options, one);
  links.far = alone;
  links.far_owner = LinkOwner::node;
  const std::size_t pairs = std::min(first.size(), second.size());
  if (pairs < 2) return;
  for (std::size_t i = 0; i < pairs; ++i) join(first[i], second[i], all);
  const double each = measure_pairs(world, options, all).bytes_per_s, together = each * static_cast<double>(pairs);
  constexpr double hardly_more = 1.5;
  const bool shared = together < hardly_more * alone.bytes_per_s;
  links.far_owner = shared ? LinkOwner::node : LinkOwner::rank;
  links.far->bytes_per_s = shared ? std::max(alone.bytes_per_s, together) : each;
}

}  // namespace

MeasuredLinks measure_links(World& world, const CalibrationOptions& options) {
  MeasuredLinks links;
  const std::vector<std::vector<Rank>> nodes = nodes_of(world);
  std::vector<Rank> near = nobody(world.size());
  bool any = false;
  for (const std::vector<Rank>& ranks : nodes) {
    if (ranks.size() < 2) continue;
    join(ranks[0], ranks[1], near);
    any = true;
  }
  if (any) links.near = measure_pairs(world, options, near);
  if (nodes.size() > 1) measure_far(world, options, nodes, links);
  return links;
}

Link measure_copies(const CalibrationOptions& options) {
  constexpr std::int64_t few = 16, many = 2048;  // a message of usual size: much larger ones miss every cache
  const double fixed_s = exchange_seconds(options, few), seconds = exchange_seconds(options, many);
  const double bytes = 1.0 * many * options.kv_heads * (options.head_dim + options.value_dim) * sizeof(float);
  return {bytes / std::max(seconds - fixed_s, seconds / 2), wake_seconds(options)};
}

/// Replies in which every row counts: rows that saw no key would be merged without being touched.
double measure_merges(const CalibrationOptions& options) {
  // Two threads of a process that has one core would each be timed while the other runs: then its ranks merge.
  std::optional<World> threads;
  if (options.others == nullptr || busy_ranks(options) > 1)
    threads.emplace(World::of_threads(std::max(2, busy_ranks(options))));
  World& world = threads ? *threads : *options.others;
  constexpr std::int64_t tokens_per_rank = 2048;
  Problem problem = problem_of(options, DType::fp32, tokens_per_rank * world.size());
  problem.mask = full_mask();
  double best = 0;
  for (int run = 0; run < options.runs; ++run) {
    line_up(options);
    const Measured measured = measure(world, options, problem, "burst", Passes::forward);
    std::int64_t bytes = 0;
    double seconds = 0;
    measured.for_each_step(Pass::forward, Lane::compute, [&](Rank rank, StepId step, double s) {
      const std::int64_t touched = touched_bytes(*measured.plan, rank, step);
      bytes += touched;
      seconds += touched > 0 ? s : 0;
    });
    if (seconds > 0) best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return mean_of(of_all(options, best));
}

}  // namespace distattn::cli
