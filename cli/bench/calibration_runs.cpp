#include "cli/bench/calibration_runs.hpp"

#include <numeric>

#include "cli/run/all_gather.hpp"

namespace distattn::cli {

Problem problem_of(const CalibrationOptions& options, DType dtype, std::int64_t tokens, Coverage coverage) {
  Problem problem;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = options.heads;
  problem.kv_heads = options.kv_heads;
  problem.head_dim = options.head_dim;
  problem.value_dim = options.value_dim;
  problem.dtype = dtype;
  problem.mask = coverage == Coverage::full ? full_mask() : causal_mask();
  return problem;
}

RunOptions run_options(const CalibrationOptions& options, int runs) {
  return {.backend = options.backend, .device = options.device, .runs = runs, .warmups = 1};
}

Measured measure(World& world, const CalibrationOptions& options, const Problem& problem,
                 const ScheduleRequest& request, int runs) {
  const auto plan = std::make_shared<const AttentionPlan>(problem, world.size(), request);
  const Inputs inputs = Inputs::random(shape_of(problem), 0);
  return {plan, run_sharded(world, plan, inputs, run_options(options, runs))};
}

Measured measure(World& world, const CalibrationOptions& options, const Problem& problem, const std::string& schedule,
                 Passes passes, int runs) {
  return measure(world, options, problem, ScheduleRequest{schedule, passes}, runs);
}

Measured measure(const CalibrationOptions& options, const Problem& problem, const std::string& schedule, int ranks,
                 Passes passes, int runs) {
  World world = World::of_threads(ranks);
  return measure(world, options, problem, schedule, passes, runs);
}

void line_up(const CalibrationOptions& options) {
  if (options.others != nullptr) options.others->all_gather({});
}

std::vector<double> of_all(const CalibrationOptions& options, double mine) {
  if (options.others == nullptr) return {mine};
  return all_gather<double>(*options.others, std::span(&mine, 1));
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace distattn::cli
