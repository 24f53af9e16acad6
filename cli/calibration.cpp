#include "calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "cpu_features.hpp"
#include "distattn/registry.hpp"
#include "distattn/simulate.hpp"
#include "prepared.hpp"
#include "sharded_run.hpp"

namespace distattn::cli {
namespace {

Problem problem_of(const CalibrationOptions& options, DType dtype, std::int64_t tokens) {
  Problem problem;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = options.heads;
  problem.kv_heads = options.kv_heads;
  problem.head_dim = problem.value_dim = options.head_dim;
  problem.dtype = dtype;
  return problem;
}

struct Measured {
  std::shared_ptr<const AttentionPlan> plan;
  RunResult result;

  /// Every step of `lane` of a pass: calls each(rank, step, seconds).
  template <class Each>
  void for_each_step(Pass pass, Lane lane, Each each) const {
    const Timeline& timeline = (pass == Pass::forward ? result.forward : result.backward).timeline;
    for (const Span& span : timeline.spans) {
      if (span.lane == lane) each(span.rank, span.step, span.end_s - span.start_s);
    }
  }
};

Measured measure(const CalibrationOptions& options, const Problem& problem, const std::string& schedule, int ranks,
                 Passes passes) {
  AttentionOptions attention;
  attention.schedule = schedule;
  attention.backward = passes == Passes::both;
  const auto plan = std::make_shared<const AttentionPlan>(problem, ranks, attention);
  const Inputs inputs = Inputs::random(shape_of(problem), 0);
  World world = World::of_threads(ranks);
  return {plan, run_sharded(world, {schedule, plan}, inputs, {options.backend, 1, 1, 1, options.provider})};
}

/// A document a rank: every rank computes one tile, and nothing is sent.
Measurements::Kernel kernel_of(const Measured& measured, DType dtype, Pass pass, Coverage coverage, std::int64_t tile,
                               std::int64_t pairs) {
  const Problem& problem = measured.plan->outline(pass).sharding.problem;
  double seconds = 0;
  measured.for_each_step(pass, Lane::compute, [&](Rank, StepId, double s) { seconds += s; });
  const double flops = static_cast<double>(pairs) * problem.heads * measured.plan->ranks() *
                       flops_per_pair(problem.head_dim, problem.value_dim, pass);
  return {dtype, pass, coverage, static_cast<double>(tile), flops / seconds};
}

/// Ranks of which each sees one token of its neighbour: everything travels and hardly anything is computed.
Problem traffic(const CalibrationOptions& options, std::int64_t tokens_per_rank, int ranks) {
  Problem problem = problem_of(options, DType::fp32, tokens_per_rank * ranks);
  problem.mask = causal_mask();
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

std::int64_t touched_bytes(const AttentionPlan& plan, Rank rank, StepId step) {
  const RankProgram program = plan.program(Pass::forward, rank);
  return sketch(plan.outline(Pass::forward), plan.tiles(Pass::forward), rank, program)
      .steps[static_cast<std::size_t>(step)]
      .touched_bytes;
}

}  // namespace

int busy_ranks(const std::string& backend) {
  return make_device(backend, {1, 1})->space() == MemorySpace::host ? cpu_cores() : 1;
}

std::vector<Measurements::Kernel> measure_tiles(const CalibrationOptions& options, DType dtype, Coverage coverage,
                                                std::int64_t tile) {
  const int ranks = busy_ranks(options.backend);
  Problem problem = problem_of(options, dtype, tile * ranks);
  problem.mask = coverage == Coverage::full ? full_mask() : causal_mask();
  for (Rank rank = 0; rank <= ranks; ++rank) problem.mask.documents.push_back(tile * rank);
  const std::int64_t pairs = coverage == Coverage::full ? tile * tile : tile * (tile + 1) / 2;
  const auto device = make_device(options.backend, {.threads = 1, .provider = options.provider});
  const bool both = device->why_not(problem, Pass::backward).empty();
  std::vector<Measurements::Kernel> best(both ? 2 : 1);
  for (int run = 0; run < options.runs; ++run) {
    const Measured measured = measure(options, problem, "ring", ranks, both ? Passes::both : Passes::forward);
    for (std::size_t pass = 0; pass < best.size(); ++pass) {
      const Measurements::Kernel kernel = kernel_of(measured, dtype, static_cast<Pass>(pass), coverage, tile, pairs);
      if (kernel.flops_per_s > best[pass].flops_per_s) best[pass] = kernel;
    }
  }
  return best;
}

Link measure_copies(const CalibrationOptions& options) {
  constexpr std::int64_t few = 16, many = 16384;
  const double latency_s = exchange_seconds(options, few), seconds = exchange_seconds(options, many);
  const double bytes = 2.0 * many * options.kv_heads * options.head_dim * sizeof(float);
  return {bytes / std::max(seconds - latency_s, seconds / 2), latency_s};
}

/// Replies in which every row counts: rows that saw no key would be merged without being touched.
double measure_merges(const CalibrationOptions& options) {
  const int ranks = std::max(2, cpu_cores());
  constexpr std::int64_t tokens_per_rank = 2048;
  Problem problem = problem_of(options, DType::fp32, tokens_per_rank * ranks);
  problem.mask = full_mask();
  double best = 0;
  for (int run = 0; run < options.runs; ++run) {
    const Measured measured = measure(options, problem, "burst", ranks, Passes::forward);
    std::int64_t bytes = 0;
    double seconds = 0;
    measured.for_each_step(Pass::forward, Lane::compute, [&](Rank rank, StepId step, double s) {
      const std::int64_t touched = touched_bytes(*measured.plan, rank, step);
      bytes += touched;
      seconds += touched > 0 ? s : 0;
    });
    if (seconds > 0) best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

Measurements calibrate(const CalibrationOptions& options, const std::function<void(const std::string&)>& progress) {
  const int cores = cpu_cores();
  Measurements measurements;
  measurements.when = utc_now();
  measurements.what = fmt::format("{}, {}/{} heads of {}, one thread on each of {} cores", options.backend,
                                  options.heads, options.kv_heads, options.head_dim, cores);
  for (const DType dtype : options.dtypes) {
    progress(fmt::format("tiles in {}", name_of(dtype)));
    for (std::int64_t tile = 64; tile <= options.largest_tile; tile *= 2) {
      for (const Coverage coverage : {Coverage::full, Coverage::partial}) {
        const auto kernels = measure_tiles(options, dtype, coverage, tile);
        measurements.kernels.insert(measurements.kernels.end(), kernels.begin(), kernels.end());
      }
    }
  }
  progress("copies and merges");
  measurements.copies = measure_copies(options);
  measurements.memory_bytes_per_s = measure_merges(options);
  return measurements;
}

}  // namespace distattn::cli
